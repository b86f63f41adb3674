"""A Streamlit app of nothing but two pictures of 50,000 points: what the comparison's page is measured beside."""

import numpy as np
import plotly.graph_objects as go
import streamlit as st

POINTS, CLASSES, HEIGHT = 50_000, 10, 560

st.set_page_config(layout="wide")
random = np.random.default_rng(0)
classes = random.integers(CLASSES, size=POINTS)
colours = np.array([f"hsl({360 * i / CLASSES:.0f}, 70%, 50%)" for i in range(CLASSES)])[classes]
for column in st.columns(2):
    x, y = (random.normal(size=(2, POINTS)) + classes).astype(np.float32)
    points = go.Scattergl(x=x, y=y, mode="markers", marker={"size": 2.5, "color": colours})
    column.plotly_chart(go.Figure(points, {"height": HEIGHT}))
