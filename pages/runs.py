"""Runs."""

import streamlit as st

st.title("Runs")
