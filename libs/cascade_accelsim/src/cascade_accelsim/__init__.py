"""Pure readers of Accel-Sim's text: logs, kernel lists, tracer statistics and GPU configs."""
