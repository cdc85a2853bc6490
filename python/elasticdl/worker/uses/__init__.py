"""What a worker does with a model beside training it."""
