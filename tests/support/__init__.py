"""Data, models and programs shared by several test files."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
