/// Reductions: sums, means, norms, largest and smallest elements, all and any.
#include <algorithm>
#include <cmath>
#include <limits>

#include "elementwise.hpp"

using namespace stand_in;

namespace {

/// A tensor as groups of elements, each of which becomes one element of the result.
struct Groups {
  Tensor view;  // dimensions that stay, then those that are reduced
  Dims shape;   // of the result
  std::size_t length = 1;
};

/// No dimensions: all of them.
Groups group(const Tensor& from, const Dims& dims, bool keep) {
  std::vector<bool> reduced(from.shape.size(), dims.empty());
  for (const std::int64_t dim : dims) {
    const std::size_t at = from.dimension(dim);
    if (from.shape.empty()) continue;  // 0 and -1 are the dimension of a number
    demand(!reduced[at], "a dimension is named twice");
    reduced[at] = true;
  }
  Groups groups{from, {}, 1};
  groups.view.shape.clear();
  groups.view.strides.clear();
  for (const bool last : {false, true}) {
    for (std::size_t i = 0; i < reduced.size(); ++i) {
      if (reduced[i] != last) continue;
      groups.view.shape.push_back(from.shape[i]);
      groups.view.strides.push_back(from.strides[i]);
      if (last) groups.length *= static_cast<std::size_t>(from.shape[i]);
    }
  }
  for (std::size_t i = 0; i < reduced.size(); ++i) {
    if (!reduced[i]) groups.shape.push_back(from.shape[i]);
    if (reduced[i] && keep) groups.shape.push_back(1);
  }
  return groups;
}

/// f(first, last) of each group's values.
template <class T, class F>
auto reduce(const std::vector<T>& values, const Groups& groups, F f) {
  std::vector<decltype(f(values.data(), values.data()))> results;
  const auto count = static_cast<std::size_t>(count_of(groups.shape));
  results.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    results.push_back(f(values.data() + i * groups.length, values.data() + (i + 1) * groups.length));
  return results;
}

template <class T>
T sum(const T* first, const T* last) {
  T total = 0;
  for (; first != last; ++first) total += *first;
  return total;
}

/// The place of the largest (or smallest) of values; the first NaN is more than anything, the first of equals wins.
template <class T>
std::size_t extreme(const T* first, const T* last, bool largest) {
  const T* best = first;
  for (const T* at = first; at != last; ++at) {
    if (*best != *best) break;
    if (*at != *at || (largest ? *at > *best : *at < *best)) best = at;
  }
  return static_cast<std::size_t>(best - first);
}

int extremes(const char* name, bool largest, const aclTensor* self, const aclIntArray* dim, bool keep,
             const aclTensor* out, std::uint64_t* workspace, aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kNumbers);
    const Groups groups = group(from, op.numbers(dim, "dim"), keep);
    const Tensor to = op.output(out, "out", kNumbers);
    same_type(from, to);
    need_shape(to, groups.shape);
    demand(groups.length > 0 || to.count() == 0, "a group without elements has no largest one");
    op.kernel([=](const Launch& launch) {
      const auto find = [largest](const auto* first, const auto* last) { return first[extreme(first, last, largest)]; };
      if (is_integral(from.type)) {
        launch(to).write_integers(reduce(launch(groups.view).read_integers(), groups, find));
      } else {
        launch(to).write(reduce(launch(groups.view).read(), groups, find));
      }
    });
  });
}

int mean(const char* name, const aclTensor* self, const aclIntArray* dim, bool keep, const aclDataType* dtype,
         bool no_dims_mean_nothing, const aclTensor* out, std::uint64_t* workspace, aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", dtype != nullptr ? kNumbers : kFloats);
    const Dims dims = op.numbers(dim, "dim");
    const Tensor to = op.output(out, "out", kFloats);
    if (dtype != nullptr) {
      demand(to.type == *dtype, "out does not have the type dtype");
    } else {
      same_type(from, to);
    }
    if (no_dims_mean_nothing && dims.empty()) {
      same_shape(from, to);
      op.kernel([=](const Launch& launch) { convert(launch(from), launch(to)); });
      return;
    }
    const Groups groups = group(from, dims, keep);
    need_shape(to, groups.shape);
    op.kernel([=](const Launch& launch) {
      launch(to).write(reduce(launch(groups.view).read(), groups, [&](const double* first, const double* last) {
        return sum(first, last) / static_cast<double>(groups.length);
      }));
    });
  });
}

double norm_of(const double* first, const double* last, double p) {
  double total = 0;
  if (std::isinf(p)) {
    const bool largest = p > 0;
    total = largest ? 0 : std::numeric_limits<double>::infinity();
    for (; first != last; ++first) {
      const double size = std::fabs(*first);
      if (std::isnan(size)) return size;
      total = largest ? std::max(total, size) : std::min(total, size);
    }
    return total;
  }
  for (; first != last; ++first) total += p == 0 ? (*first != 0 ? 1 : 0) : std::pow(std::fabs(*first), p);
  return p == 0 ? total : std::pow(total, 1 / p);
}

int norm(const char* name, const aclTensor* self, const aclScalar* order, const aclIntArray* dim, bool keep,
         const aclDataType* dtype, const aclTensor* out, std::uint64_t* workspace, aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kFloats);
    const double p = as_float(op.number(order, dtype != nullptr ? "ord" : "pScalar"));
    const Groups groups = group(from, op.numbers(dim, "dim"), keep);
    const Tensor to = op.output(out, "out", kFloats);
    if (dtype != nullptr) {
      demand(to.type == *dtype, "out does not have the type dtype");
    } else {
      same_type(from, to);
    }
    demand_converts(from.type, to);
    need_shape(to, groups.shape);
    op.kernel([=](const Launch& launch) {
      launch(to).write(reduce(launch(groups.view).read(), groups,
                              [&](const double* first, const double* last) { return norm_of(first, last, p); }));
    });
  });
}

int truth(const char* name, bool all, const aclTensor* self, const aclIntArray* dim, bool keep, const aclTensor* out,
          std::uint64_t* workspace, aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kNumbers);
    const Groups groups = group(from, op.numbers(dim, "dim"), keep);
    const Tensor to = op.output(out, "out", {ACL_BOOL, ACL_UINT8});
    need_shape(to, groups.shape);
    op.kernel([=](const Launch& launch) {
      launch(to).write(reduce(launch(groups.view).read(), groups, [&](const double* first, const double* last) {
        const auto holds = [](double value) { return value != 0; };
        return (all ? std::all_of(first, last, holds) : std::any_of(first, last, holds)) ? 1.0 : 0.0;
      }));
    });
  });
}

}  // namespace

extern "C" {

int aclnnReduceSumGetWorkspaceSize(const aclTensor* self, const aclIntArray* dims, bool keepDims, aclDataType dtype,
                                   aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("ReduceSum", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kNumbers);
    const Groups groups = group(from, op.numbers(dims, "dims"), keepDims);
    const Tensor to = op.output(out, "out", kNumbers);
    demand(to.type == dtype, "out does not have the type dtype");
    demand_converts(from.type, to);
    need_shape(to, groups.shape);
    op.kernel([=](const Launch& launch) {
      if (is_integral(to.type)) {
        write_wrapped(launch(to), reduce(launch(groups.view).read_integers(), groups, sum<std::int64_t>));
      } else {
        launch(to).write(reduce(launch(groups.view).read(), groups, sum<double>));
      }
    });
  });
}
STAND_IN_PHASE_TWO(ReduceSum)

int aclnnMeanGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepDim, aclDataType dtype,
                              aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return mean("Mean", self, dim, keepDim, &dtype, false, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Mean)

int aclnnMeanV2GetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepDim, bool noopWithEmptyAxes,
                                aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return mean("MeanV2", self, dim, keepDim, nullptr, noopWithEmptyAxes, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(MeanV2)

int aclnnNormGetWorkspaceSize(const aclTensor* self, const aclScalar* pScalar, const aclIntArray* dim, bool keepdim,
                              aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return norm("Norm", self, pScalar, dim, keepdim, nullptr, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Norm)

int aclnnLinalgVectorNormGetWorkspaceSize(const aclTensor* self, const aclScalar* ord, const aclIntArray* dims,
                                          bool keepDims, const aclDataType dtype, aclTensor* out,
                                          uint64_t* workspaceSize, aclOpExecutor** executor) {
  return norm("LinalgVectorNorm", self, ord, dims, keepDims, &dtype, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(LinalgVectorNorm)

int aclnnAmaxGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out,
                              uint64_t* workspaceSize, aclOpExecutor** executor) {
  return extremes("Amax", true, self, dim, keepDim, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Amax)

int aclnnAminGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out,
                              uint64_t* workspaceSize, aclOpExecutor** executor) {
  return extremes("Amin", false, self, dim, keepDim, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Amin)

int aclnnMaxDimGetWorkspaceSize(const aclTensor* self, int64_t dim, bool keepdim, aclTensor* out, aclTensor* indices,
                                uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("MaxDim", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kNumbers);
    const Groups groups = group(from, {dim}, keepdim);
    const Tensor to = op.output(out, "out", kNumbers), places = op.output(indices, "indices", kIndices);
    same_type(from, to);
    need_shape(to, groups.shape);
    need_shape(places, groups.shape);
    demand(groups.length > 0 || to.count() == 0, "a group without elements has no largest one");
    op.kernel([=](const Launch& launch) {
      const auto find = [](const auto* first, const auto* last) {
        return static_cast<std::int64_t>(extreme(first, last, true));
      };
      const auto value = [](const auto* first, const auto* last) { return first[extreme(first, last, true)]; };
      if (is_integral(from.type)) {
        const std::vector<std::int64_t> values = launch(groups.view).read_integers();
        launch(places).write_integers(reduce(values, groups, find));
        launch(to).write_integers(reduce(values, groups, value));
      } else {
        const std::vector<double> values = launch(groups.view).read();
        launch(places).write_integers(reduce(values, groups, find));
        launch(to).write(reduce(values, groups, value));
      }
    });
  });
}
STAND_IN_PHASE_TWO(MaxDim)

int aclnnArgMaxGetWorkspaceSize(const aclTensor* self, int64_t dim, bool keepdim, aclTensor* out,
                                uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("ArgMax", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kNumbers);
    const Groups groups = group(from, {dim}, keepdim);
    const Tensor to = op.output(out, "out", kIndices);
    need_shape(to, groups.shape);
    demand(groups.length > 0 || to.count() == 0, "a group without elements has no largest one");
    op.kernel([=](const Launch& launch) {
      const auto find = [](const auto* first, const auto* last) {
        return static_cast<std::int64_t>(extreme(first, last, true));
      };
      if (is_integral(from.type)) {
        launch(to).write_integers(reduce(launch(groups.view).read_integers(), groups, find));
      } else {
        launch(to).write_integers(reduce(launch(groups.view).read(), groups, find));
      }
    });
  });
}
STAND_IN_PHASE_TWO(ArgMax)

int aclnnLogSumExpGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out,
                                   uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("LogSumExp", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kFloats);
    const Groups groups = group(from, op.numbers(dim, "dim"), keepDim);
    const Tensor to = op.output(out, "out", kFloats);
    need_shape(to, groups.shape);
    op.kernel([=](const Launch& launch) {
      launch(to).write(reduce(launch(groups.view).read(), groups, [](const double* first, const double* last) {
        if (first == last) return -std::numeric_limits<double>::infinity();
        const double most = first[extreme(first, last, true)];
        if (!std::isfinite(most)) return most;
        double total = 0;
        for (; first != last; ++first) total += std::exp(*first - most);
        return most + std::log(total);
      }));
    });
  });
}
STAND_IN_PHASE_TWO(LogSumExp)

int aclnnAllGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepdim, aclTensor* out,
                             uint64_t* workspaceSize, aclOpExecutor** executor) {
  return truth("All", true, self, dim, keepdim, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(All)

int aclnnAnyGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepdim, aclTensor* out,
                             uint64_t* workspaceSize, aclOpExecutor** executor) {
  return truth("Any", false, self, dim, keepdim, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Any)

}  // extern "C"
