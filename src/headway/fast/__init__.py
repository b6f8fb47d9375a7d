"""Optional Triton kernels, each with a readable twin beside its caller, which runs where there is no triton."""
