"""ElasticDL: elastic deep learning on Kubernetes and on one machine."""

__version__ = "1.0.0.dev0"
