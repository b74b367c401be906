"""Events: models, names, clients, streams, and the transport that lets Faust read them."""
