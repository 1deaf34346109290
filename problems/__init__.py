"""Applications of optpy, one module each: its energy first, then its data, then `main()`."""
