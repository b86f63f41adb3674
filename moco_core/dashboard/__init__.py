"""What pages are made of: cached loaders, figure builders, widgets."""

import streamlit as st
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import get_script_run_ctx

# Until a server has called `st.navigation` once, Streamlit takes `pages/` for its older way of listing pages: a
# link to a page would open it without `app.py` around it. So the first script of a server starts over.
if PagesManager.uses_pages_directory and get_script_run_ctx() is not None:
    PagesManager.uses_pages_directory = False
    st.rerun()
