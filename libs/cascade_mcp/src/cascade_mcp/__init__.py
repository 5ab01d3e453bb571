"""The app's actions as tools for agents, by the Model Context Protocol."""
