"""The core of Berth: who may hold a share of a GPU, who holds it, and what it cost."""
