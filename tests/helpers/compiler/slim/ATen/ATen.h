// As torch/extension.h beside it: what the operators use of it.
#pragma once

#include <ATen/core/Tensor.h>
