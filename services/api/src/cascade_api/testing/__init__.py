"""What tests of the gateway share: a running gateway, a client that carries the token, facts to begin with."""
