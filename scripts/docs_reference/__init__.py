"""What the documentation takes from code: tables, diagrams and examples, one function a generated part."""
