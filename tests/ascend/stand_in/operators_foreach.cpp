/// Operators on lists of tensors.
#include <algorithm>
#include <cmath>

#include "elementwise.hpp"

using namespace stand_in;

namespace {

constexpr std::size_t kMostTensors = 50;

/// Lists that belong together: contiguous tensors of one type, each of the shape of the others at its place.
void check_lists(const std::vector<std::vector<Tensor>>& lists) {
  const std::vector<Tensor>& first = lists[0];
  demand(!first.empty(), "an empty list");
  demand(first.size() <= kMostTensors, "a list of more than 50 tensors");
  for (const std::vector<Tensor>& list : lists) {
    demand(list.size() == first.size(), "the lists do not have as many tensors");
    for (std::size_t i = 0; i < list.size(); ++i) {
      same_type(first[0], list[i]);
      same_shape(first[i], list[i]);
      need_contiguous(list[i]);
    }
  }
}

/// A list of FLOAT16 takes its scalar as FLOAT16 or DOUBLE, others of floats as FLOAT or DOUBLE.
Number scalar_for(Operator& op, const aclScalar* scalar, const char* name, aclDataType type) {
  const Number number = op.number(scalar, name);
  if (is_integral(type)) {
    demand(is_integral(number.type), std::string(name) + " does not convert to the type of the list");
  } else {
    const aclDataType narrow = type == ACL_FLOAT16 ? ACL_FLOAT16 : ACL_FLOAT;
    demand(number.type == narrow || number.type == ACL_DOUBLE,
           std::string(name) + " is " + name_of(number.type) + " for a list of " + name_of(type));
  }
  return number;
}

/// The kernel of out = f(an element of each input).
void set_kernel(Operator& op, const std::vector<std::vector<Tensor>>& inputs, const std::vector<Tensor>& outputs,
                const std::function<double(const double*)>& f) {
  op.kernel([=](const Launch& launch) {
    std::vector<std::vector<double>> results;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      std::vector<std::vector<double>> read;
      for (const std::vector<Tensor>& list : inputs) read.push_back(launch(list[i]).read());
      std::vector<double> result(read[0].size());
      std::vector<double> arguments(read.size());
      for (std::size_t k = 0; k < result.size(); ++k) {
        for (std::size_t j = 0; j < read.size(); ++j) arguments[j] = read[j][k];
        result[k] = f(arguments.data());
      }
      results.push_back(std::move(result));
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) launch(outputs[i]).write(results[i]);
  });
}

const Types kListTypes = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_INT32};

/// x1 + scalar · x2 · x3, or · x2 / x3; the scalar one for all or one of `scalars` for each tensor.
int add_products(const char* name, bool divide, const aclTensorList* x1, const aclTensorList* x2,
                 const aclTensorList* x3, const aclScalar* scalar, const aclTensor* scalars, bool has_scalars,
                 const aclTensorList* out, std::uint64_t* workspace, aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const std::vector<Tensor> a = op.inputs(x1, "x1", kFloats), b = op.inputs(x2, "x2", kFloats),
                              c = op.inputs(x3, "x3", kFloats);
    Number number;
    Tensor each;
    const aclDataType type = a.empty() ? ACL_FLOAT : a[0].type;
    if (has_scalars) {
      each = op.input(scalars, "scalars", {type == ACL_FLOAT16 ? ACL_FLOAT16 : ACL_FLOAT});
      need_shape(each, {static_cast<std::int64_t>(a.size())});
    } else {
      number = scalar_for(op, scalar, "scalar", type);
    }
    const std::vector<Tensor> to = op.outputs(out, "out", kFloats);
    check_lists({a, b, c, to});
    op.kernel([=](const Launch& launch) {
      const std::vector<double> factors =
          has_scalars ? launch(each).read() : std::vector<double>(a.size(), as_float(number));
      std::vector<std::vector<double>> results;
      for (std::size_t i = 0; i < a.size(); ++i) {
        std::vector<double> x = launch(a[i]).read();
        const std::vector<double> y = launch(b[i]).read(), z = launch(c[i]).read();
        for (std::size_t k = 0; k < x.size(); ++k) x[k] += factors[i] * (divide ? y[k] / z[k] : y[k] * z[k]);
        results.push_back(std::move(x));
      }
      for (std::size_t i = 0; i < to.size(); ++i) launch(to[i]).write(results[i]);
    });
  });
}

}  // namespace

extern "C" {

int aclnnForeachAddcdivScalarV2GetWorkspaceSize(const aclTensorList* x1, const aclTensorList* x2,
                                                const aclTensorList* x3, const aclScalar* scalar, aclTensorList* out,
                                                uint64_t* workspaceSize, aclOpExecutor** executor) {
  return add_products("ForeachAddcdivScalarV2", true, x1, x2, x3, scalar, nullptr, false, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(ForeachAddcdivScalarV2)

int aclnnForeachAddcdivListGetWorkspaceSize(const aclTensorList* x1, const aclTensorList* x2, const aclTensorList* x3,
                                            const aclTensor* scalars, const aclTensorList* out, uint64_t* workspaceSize,
                                            aclOpExecutor** executor) {
  return add_products("ForeachAddcdivList", true, x1, x2, x3, nullptr, scalars, true, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(ForeachAddcdivList)

int aclnnForeachAddcdivScalarListGetWorkspaceSize(const aclTensorList* x1, const aclTensorList* x2,
                                                  const aclTensorList* x3, const aclTensor* scalars,
                                                  const aclTensorList* out, uint64_t* workspaceSize,
                                                  aclOpExecutor** executor) {
  return add_products("ForeachAddcdivScalarList", true, x1, x2, x3, nullptr, scalars, true, out, workspaceSize,
                      executor);
}
STAND_IN_PHASE_TWO(ForeachAddcdivScalarList)

int aclnnForeachAddcmulScalarV2GetWorkspaceSize(const aclTensorList* x1, const aclTensorList* x2,
                                                const aclTensorList* x3, const aclScalar* scalar, aclTensorList* out,
                                                uint64_t* workspaceSize, aclOpExecutor** executor) {
  return add_products("ForeachAddcmulScalarV2", false, x1, x2, x3, scalar, nullptr, false, out, workspaceSize,
                      executor);
}
STAND_IN_PHASE_TWO(ForeachAddcmulScalarV2)

int aclnnForeachMulScalarV2GetWorkspaceSize(const aclTensorList* x, const aclScalar* scalar, aclTensorList* out,
                                            uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("ForeachMulScalarV2", workspaceSize, executor, [&](Operator& op) {
    const std::vector<Tensor> from = op.inputs(x, "x", kListTypes);
    const Number number = scalar_for(op, scalar, "scalar", from.empty() ? ACL_FLOAT : from[0].type);
    const std::vector<Tensor> to = op.outputs(out, "out", kListTypes);
    check_lists({from, to});
    set_kernel(op, {from}, to, [factor = as_float(number)](const double* a) { return a[0] * factor; });
  });
}
STAND_IN_PHASE_TWO(ForeachMulScalarV2)

int aclnnForeachAddScalarV2GetWorkspaceSize(const aclTensorList* x, const aclScalar* scalar, aclTensorList* out,
                                            uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("ForeachAddScalarV2", workspaceSize, executor, [&](Operator& op) {
    const std::vector<Tensor> from = op.inputs(x, "x", kListTypes);
    const Number number = scalar_for(op, scalar, "scalar", from.empty() ? ACL_FLOAT : from[0].type);
    const std::vector<Tensor> to = op.outputs(out, "out", kListTypes);
    check_lists({from, to});
    set_kernel(op, {from}, to, [addend = as_float(number)](const double* a) { return a[0] + addend; });
  });
}
STAND_IN_PHASE_TWO(ForeachAddScalarV2)

int aclnnForeachAddListV2GetWorkspaceSize(const aclTensorList* x1, const aclTensorList* x2, const aclScalar* alpha,
                                          aclTensorList* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("ForeachAddListV2", workspaceSize, executor, [&](Operator& op) {
    const std::vector<Tensor> a = op.inputs(x1, "x1", kListTypes), b = op.inputs(x2, "x2", kListTypes);
    const Number number = scalar_for(op, alpha, "alpha", a.empty() ? ACL_FLOAT : a[0].type);
    const std::vector<Tensor> to = op.outputs(out, "out", kListTypes);
    check_lists({a, b, to});
    set_kernel(op, {a, b}, to, [factor = as_float(number)](const double* v) { return v[0] + factor * v[1]; });
  });
}
STAND_IN_PHASE_TWO(ForeachAddListV2)

int aclnnForeachMulListGetWorkspaceSize(const aclTensorList* x1, const aclTensorList* x2, const aclTensorList* out,
                                        uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("ForeachMulList", workspaceSize, executor, [&](Operator& op) {
    const std::vector<Tensor> a = op.inputs(x1, "x1", kListTypes), b = op.inputs(x2, "x2", kListTypes);
    const std::vector<Tensor> to = op.outputs(out, "out", kListTypes);
    check_lists({a, b, to});
    set_kernel(op, {a, b}, to, [](const double* v) { return v[0] * v[1]; });
  });
}
STAND_IN_PHASE_TWO(ForeachMulList)

int aclnnForeachSqrtGetWorkspaceSize(const aclTensorList* x, const aclTensorList* out, uint64_t* workspaceSize,
                                     aclOpExecutor** executor) {
  return prepare("ForeachSqrt", workspaceSize, executor, [&](Operator& op) {
    const std::vector<Tensor> from = op.inputs(x, "x", kFloats), to = op.outputs(out, "out", kFloats);
    check_lists({from, to});
    set_kernel(op, {from}, to, [](const double* v) { return std::sqrt(v[0]); });
  });
}
STAND_IN_PHASE_TWO(ForeachSqrt)

int aclnnForeachNormGetWorkspaceSize(const aclTensorList* x, const aclScalar* scalar, const aclTensorList* out,
                                     uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("ForeachNorm", workspaceSize, executor, [&](Operator& op) {
    const std::vector<Tensor> from = op.inputs(x, "x", kFloats);
    const double order = as_float(op.number(scalar, "scalar"));
    const std::vector<Tensor> to = op.outputs(out, "out", kFloats);
    check_lists({from});
    demand(to.size() == from.size(), "the lists do not have as many tensors");
    demand(order == 1 || order == 2, "the norm of a list is that of order 1 or 2");
    for (const Tensor& one : to) {
      same_type(from[0], one);
      demand(one.count() == 1, one.name + " is not one element");
    }
    op.kernel([=](const Launch& launch) {
      for (std::size_t i = 0; i < from.size(); ++i) {
        double total = 0;
        for (const double value : launch(from[i]).read()) total += order == 1 ? std::fabs(value) : value * value;
        launch(to[i]).write({order == 1 ? total : std::sqrt(total)});
      }
    });
  });
}
STAND_IN_PHASE_TWO(ForeachNorm)

int aclnnForeachCopyGetWorkspaceSize(const aclTensorList* x, const aclTensorList* out, uint64_t* workspaceSize,
                                     aclOpExecutor** executor) {
  return prepare("ForeachCopy", workspaceSize, executor, [&](Operator& op) {
    const std::vector<Tensor> from = op.inputs(x, "x", kMovable), to = op.outputs(out, "out", kMovable);
    check_lists({from, to});
    op.kernel([=](const Launch& launch) {
      for (std::size_t i = 0; i < from.size(); ++i) convert(launch(from[i]), launch(to[i]));
    });
  });
}
STAND_IN_PHASE_TWO(ForeachCopy)

int aclnnForeachZeroInplaceGetWorkspaceSize(const aclTensorList* x, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("ForeachZeroInplace", workspaceSize, executor, [&](Operator& op) {
    const std::vector<Tensor> all = op.outputs(x, "x", kMovable);
    check_lists({all});
    op.kernel([=](const Launch& launch) {
      for (const Tensor& one : all)
        launch(one).write_integers(std::vector<std::int64_t>(static_cast<std::size_t>(one.count()), 0));
    });
  });
}
STAND_IN_PHASE_TWO(ForeachZeroInplace)

int aclnnFusedAdamwGetWorkspaceSize(const aclTensorList* paramsRef, const aclTensorList* grads,
                                    const aclTensorList* expAvgsRef, const aclTensorList* expAvgSqsRef,
                                    const aclTensorList* maxExpAvgSqsRef, const aclTensorList* stateSteps,
                                    const aclTensor* gradScaleOptional, const aclTensor* foundInfOptional, double lr,
                                    double beta1, double beta2, double weightDecay, double eps, bool amsgrad,
                                    bool maximize, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("FusedAdamw", workspaceSize, executor, [&](Operator& op) {
    const std::vector<Tensor> p = op.in_place(paramsRef, "paramsRef", kFloats), g = op.inputs(grads, "grads", kFloats);
    const std::vector<Tensor> m = op.in_place(expAvgsRef, "expAvgsRef", kFloats);
    const std::vector<Tensor> v = op.in_place(expAvgSqsRef, "expAvgSqsRef", kFloats);
    std::vector<Tensor> most;
    if (amsgrad) most = op.in_place(maxExpAvgSqsRef, "maxExpAvgSqsRef", kFloats);
    const std::vector<Tensor> steps = op.inputs(stateSteps, "stateSteps", {ACL_FLOAT});
    const Tensor scale = op.optional_input(gradScaleOptional, "gradScaleOptional", {ACL_FLOAT});
    const Tensor found = op.optional_input(foundInfOptional, "foundInfOptional", {ACL_FLOAT});
    check_lists({p, g, m, v, amsgrad ? most : p});
    demand(steps.size() == p.size(), "stateSteps does not have as many tensors as paramsRef");
    for (const Tensor& step : steps) demand(step.count() == 1, "a step is not one number");
    for (const Tensor& one : {scale, found})
      demand(!one.present() || one.count() == 1, one.name + " is not one number");
    op.kernel([=](const Launch& launch) {
      if (found.present() && launch(found).read()[0] != 0) return;
      const double unscale = scale.present() ? 1 / launch(scale).read()[0] : 1;
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double t = launch(steps[i]).read()[0] + 1;  // the steps that were completed
        const double bias1 = 1 - std::pow(beta1, t), bias2 = 1 - std::pow(beta2, t);
        std::vector<double> w = launch(p[i]).read(), first = launch(m[i]).read(), second = launch(v[i]).read(), top;
        const std::vector<double> gradient = launch(g[i]).read();
        if (amsgrad) top = launch(most[i]).read();
        for (std::size_t k = 0; k < w.size(); ++k) {
          const double d = (maximize ? -1 : 1) * gradient[k] * unscale;
          w[k] *= 1 - lr * weightDecay;
          first[k] += (1 - beta1) * (d - first[k]);
          second[k] = beta2 * second[k] + (1 - beta2) * d * d;
          if (amsgrad) top[k] = std::max(top[k], second[k]);
          w[k] -= lr / bias1 * first[k] / (std::sqrt((amsgrad ? top[k] : second[k]) / bias2) + eps);
        }
        launch(p[i]).write(w);
        launch(m[i]).write(first);
        launch(v[i]).write(second);
        if (amsgrad) launch(most[i]).write(top);
      }
    });
  });
}
STAND_IN_PHASE_TWO(FusedAdamw)

}  // extern "C"
