"""What each attention can do here: its printed equation, grid, search and dense counterpart. One file each."""
