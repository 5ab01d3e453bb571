"""What goes over HTTP: request and response bodies, exactly as the reference pages give them."""
