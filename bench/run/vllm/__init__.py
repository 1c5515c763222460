"""`engine=vllm`: rules inside vLLM, in an environment of their own."""
