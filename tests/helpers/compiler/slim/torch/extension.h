// What the operators of DeepSpeed 0.19 for a CPU use of torch/extension.h, in its place (quick-g++): tensors, three
// functions that make one, and the way of a tensor from Python and back. The whole has every function of torch, and takes
// twice as long to read; what it leaves to the end of each source takes twice as long, too.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/utils/pybind.h>

namespace torch {
using namespace at;
using Dtype = at::ScalarType;
constexpr auto kInt32 = at::kInt;
constexpr auto kInt64 = at::kLong;
constexpr auto kFloat16 = at::kHalf;
constexpr auto kFloat32 = at::kFloat;
constexpr auto kFloat64 = at::kDouble;
} // namespace torch
