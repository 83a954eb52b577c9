"""FilesystemService: single files and whole trees."""
