"""Data, models and programs that several test files share."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
