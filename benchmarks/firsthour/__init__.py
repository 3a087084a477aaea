"""What the first hour promises: drafts that need few edits, designed views that err no more than those made by hand."""
