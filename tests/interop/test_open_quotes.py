"""A quotation mark that none closes takes lines into its cell: that is said, with the line where it stands."""

import pytest

from moco_core.interop.problem import VectorsError
from moco_core.interop.vectors import read_vectors

OPEN = {
    "first cell": 'name,v0,v1\na,1,2\n"alpha,1,2\nbeta,3,4\n"gamma",5,6\n"d",7,8\n',
    "last cell": 'v0,v1,name\n1,2,a\n1,2,"alpha\n3,4,beta\n5,6,"gamma"\n7,8,"d"\n',
    "within": 'v0,v1,name,label\n1,2,a,x\n1,2,"alpha,x\n3,4,beta,y\n5,6,"gamma",y\n7,8,"d",x\n',
    "to the end": 'name,v0,v1\na,1,2\n"alpha,1,2\nbeta,3,4\n',
    "to the end, after a cell of two lines": 'name,v0,v1\n"a\nb",1,2\n"alpha,1,2\n',
}


@pytest.mark.parametrize("case", OPEN)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_line_is_named(tmp_path, case, end):
    file = tmp_path / "a.csv"
    file.write_bytes(OPEN[case].replace("\n", end).encode())
    line = 1 + OPEN[case].split('"alpha')[0].count("\n")
    with pytest.raises(VectorsError, match=rf"quotation mark in line {line} of a\.csv is not closed"):
        read_vectors(file)


def test_marks_that_open_nothing_and_texts_of_several_lines_are_left_alone(tmp_path):
    (tmp_path / "a.csv").write_text(
        'name,v0,v1\n"a, b\nc, d, e",1,2\n5" nail,3,4\nx,5,"6"\n"say ""hi""",7,8\n'
    )
    found = read_vectors(tmp_path / "a.csv").vectors
    assert found.names == ("a, b\nc, d, e", '5" nail', "x", 'say "hi"')
    assert found.values.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
