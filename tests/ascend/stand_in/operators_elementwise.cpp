/// Element-wise arithmetic: sums, products, quotients, functions of one element, powers, limits.
#include <algorithm>
#include <cmath>

#include "elementwise.hpp"

using namespace stand_in;

namespace {

/// f(self, other, factor) for floating point numbers and for integers. Without `whole`, integers give floats.
struct Formula {
  double (*real)(double self, double other, double factor);
  std::int64_t (*whole)(std::int64_t self, std::int64_t other, std::int64_t factor) = nullptr;
};

std::int64_t wrapping_product(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

const Formula kSum{
    [](double a, double b, double f) { return a + f * b; },
    [](std::int64_t a, std::int64_t b, std::int64_t f) { return wrapping_sum(a, wrapping_product(f, b)); }};
const Formula kDifference{
    [](double a, double b, double f) { return a - f * b; },
    [](std::int64_t a, std::int64_t b, std::int64_t f) { return wrapping_sum(a, wrapping_product(-f, b)); }};
const Formula kProduct{[](double a, double b, double) { return a * b; },
                       [](std::int64_t a, std::int64_t b, std::int64_t) { return wrapping_product(a, b); }};
const Formula kQuotient{[](double a, double b, double) { return a / b; }};
const Formula kLargest{
    [](double a, double b, double) { return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b); },
    [](std::int64_t a, std::int64_t b, std::int64_t) { return std::max(a, b); }};
const Formula kSmallest{
    [](double a, double b, double) { return std::isnan(a) || std::isnan(b) ? std::nan("") : std::min(a, b); },
    [](std::int64_t a, std::int64_t b, std::int64_t) { return std::min(a, b); }};
const Formula kPower{[](double a, double b, double) { return std::pow(a, b); },
                     [](std::int64_t a, std::int64_t b, std::int64_t) {
                       std::int64_t product = 1;
                       for (; b > 0; --b) product = wrapping_product(product, a);
                       return product;
                     }};

/// The factor of another operand; one where the operator has none.
Number factor_of(Operator& op, const aclScalar* alpha, bool has_alpha, aclDataType type) {
  if (!has_alpha) return {type, 1, 1};
  const Number factor = op.number(alpha, "alpha");
  demand(is_floating(type) || !is_floating(factor.type), "alpha does not convert to the type of the result");
  return factor;
}

aclDataType computed(const Formula& formula, aclDataType type) {
  return formula.whole == nullptr && is_integral(type) ? ACL_FLOAT : type;
}

/// The kernel of out = f(a, b, factor), all of the shape of out.
void set_kernel(Operator& op, const Formula& formula, const Tensor& a, const Tensor& b, const Number& factor,
                const Tensor& out, aclDataType type) {
  const double real = as_float(factor, type);
  op.kernel([=](const Launch& launch) {
    if (is_integral(type)) {
      std::vector<std::int64_t> x = launch(a.broadcast(out.shape)).read_integers();
      const std::vector<std::int64_t> y = launch(b.broadcast(out.shape)).read_integers();
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = wrapped(formula.whole(x[i], y[i], factor.integer), type);
      write_wrapped(launch(out), std::move(x));
    } else {
      std::vector<double> x = launch(a.broadcast(out.shape)).read();
      const std::vector<double> y = launch(b.broadcast(out.shape)).read();
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = formula.real(x[i], y[i], real);
      launch(out).write(x);
    }
  });
}

/// The same with a scalar b.
void set_kernel(Operator& op, const Formula& formula, const Tensor& a, const Number& b, const Number& factor,
                const Tensor& out, aclDataType type) {
  const double y = as_float(b, type), real = as_float(factor, type);
  op.kernel([=](const Launch& launch) {
    if (is_integral(type)) {
      std::vector<std::int64_t> x = launch(a).read_integers();
      for (std::int64_t& value : x) value = wrapped(formula.whole(value, b.integer, factor.integer), type);
      write_wrapped(launch(out), std::move(x));
    } else {
      std::vector<double> x = launch(a).read();
      for (double& value : x) value = formula.real(value, y, real);
      launch(out).write(x);
    }
  });
}

int binary(const char* name, const Formula& formula, const aclTensor* self, const aclTensor* other,
           const aclScalar* alpha, bool has_alpha, const aclTensor* out, std::uint64_t* workspace,
           aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const Tensor a = op.input(self, "self", kNumbers), b = op.input(other, "other", kNumbers);
    const aclDataType type = computed(formula, promote(a.type, b.type));
    const Number factor = factor_of(op, alpha, has_alpha, type);
    const Tensor to = op.output(out, "out", kNumbers);
    need_shape(to, broadcast_shape(a.shape, b.shape));
    demand_converts(type, to);
    set_kernel(op, formula, a, b, factor, to, type);
  });
}

int binary_in_place(const char* name, const Formula& formula, const aclTensor* self, const aclTensor* other,
                    const aclScalar* alpha, bool has_alpha, std::uint64_t* workspace, aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const Tensor a = op.in_place(self, "selfRef", kNumbers), b = op.input(other, "other", kNumbers);
    const aclDataType type = computed(formula, promote(a.type, b.type));
    const Number factor = factor_of(op, alpha, has_alpha, type);
    need_shape(a, broadcast_shape(a.shape, b.shape));  // other alone may be expanded
    demand_converts(type, a);
    set_kernel(op, formula, a, b, factor, a, type);
  });
}

int with_scalar(const char* name, const Formula& formula, const aclTensor* self, const aclScalar* other,
                const aclScalar* alpha, bool has_alpha, const aclTensor* out, std::uint64_t* workspace,
                aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const Tensor a = op.input(self, "self", kNumbers);
    const Number b = op.number(other, "other");
    const aclDataType type = computed(formula, promote(a.type, b));
    const Number factor = factor_of(op, alpha, has_alpha, type);
    const Tensor to = op.output(out, "out", kNumbers);
    same_shape(a, to);
    demand_converts(type, to);
    set_kernel(op, formula, a, b, factor, to, type);
  });
}

int with_scalar_in_place(const char* name, const Formula& formula, const aclTensor* self, const aclScalar* other,
                         const aclScalar* alpha, bool has_alpha, std::uint64_t* workspace, aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const Tensor a = op.in_place(self, "selfRef", kNumbers);
    const Number b = op.number(other, "other");
    const aclDataType type = computed(formula, promote(a.type, b));
    const Number factor = factor_of(op, alpha, has_alpha, type);
    demand_converts(type, a);
    set_kernel(op, formula, a, b, factor, a, type);
  });
}

using Function = double (*)(double);

/// out = f(self), a floating point number whatever self is.
int unary(const char* name, Function f, const aclTensor* self, const aclTensor* out, std::uint64_t* workspace,
          aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const bool in_place = self == out;
    const Tensor from = in_place ? op.in_place(self, "selfRef", kNumbers) : op.input(self, "self", kNumbers);
    const Tensor to = in_place ? from : op.output(out, "out", kNumbers);
    same_shape(from, to);
    demand_converts(is_integral(from.type) ? ACL_FLOAT : from.type, to);
    op.kernel([=](const Launch& launch) {
      std::vector<double> values = launch(from).read();
      for (double& value : values) value = f(value);
      launch(to).write(values);
    });
  });
}

int unary_in_place(const char* name, Function f, const aclTensor* self, std::uint64_t* workspace,
                   aclOpExecutor** executor) {
  return unary(name, f, self, self, workspace, executor);
}

/// The sign changes or goes; what type self has is the result's too.
int sign(const char* name, bool negate, const aclTensor* self, const aclTensor* out, std::uint64_t* workspace,
         aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const bool in_place = self == out;
    const Tensor from = in_place ? op.in_place(self, "selfRef", kSigned) : op.input(self, "self", kSigned);
    const Tensor to = in_place ? from : op.output(out, "out", kSigned);
    same_shape(from, to);
    demand_converts(from.type, to);
    op.kernel([=](const Launch& launch) {
      if (is_integral(from.type)) {
        std::vector<std::int64_t> values = launch(from).read_integers();
        for (std::int64_t& value : values)
          if (negate || value < 0) value = wrapped(wrapping_product(value, -1), from.type);
        write_wrapped(launch(to), std::move(values));
      } else {
        std::vector<double> values = launch(from).read();
        for (double& value : values) value = negate ? -value : std::fabs(value);
        launch(to).write(values);
      }
    });
  });
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double inverse_root(double x) { return 1 / std::sqrt(x); }
double reciprocal(double x) { return 1 / x; }
double exponential(double x) { return std::exp(x); }
double logarithm(double x) { return std::log(x); }
double root(double x) { return std::sqrt(x); }
double hyperbolic_tangent(double x) { return std::tanh(x); }

/// self + value · tensor1 · tensor2, or · tensor1 / tensor2.
int add_product(const char* name, bool divide, const aclTensor* self, const aclTensor* tensor1,
                const aclTensor* tensor2, const aclScalar* value, const aclTensor* out, std::uint64_t* workspace,
                aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const bool in_place = self == out;
    const Types& types = divide ? kFloats : kNumbers;
    const Tensor base = in_place ? op.in_place(self, "selfRef", types) : op.input(self, "self", types);
    const Tensor a = op.input(tensor1, "tensor1", types), b = op.input(tensor2, "tensor2", types);
    const aclDataType type = promote(base.type, promote(a.type, b.type));
    const Number factor = op.number(value, "value");
    demand(is_floating(type) || !is_floating(factor.type), "value does not convert to the type of the result");
    const Tensor to = in_place ? base : op.output(out, "out", types);
    need_shape(to, broadcast_shape(base.shape, broadcast_shape(a.shape, b.shape)));
    demand_converts(type, to);
    const double f = as_float(factor, type);
    op.kernel([=](const Launch& launch) {
      if (is_integral(type)) {
        std::vector<std::int64_t> x = launch(base.broadcast(to.shape)).read_integers();
        const std::vector<std::int64_t> y = launch(a.broadcast(to.shape)).read_integers();
        const std::vector<std::int64_t> z = launch(b.broadcast(to.shape)).read_integers();
        for (std::size_t i = 0; i < x.size(); ++i)
          x[i] = wrapped(wrapping_sum(x[i], wrapping_product(factor.integer, wrapping_product(y[i], z[i]))), type);
        write_wrapped(launch(to), std::move(x));
        return;
      }
      std::vector<double> x = launch(base.broadcast(to.shape)).read();
      const std::vector<double> y = launch(a.broadcast(to.shape)).read();
      const std::vector<double> z = launch(b.broadcast(to.shape)).read();
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += divide ? f * y[i] / z[i] : f * y[i] * z[i];
      launch(to).write(x);
    });
  });
}

int interpolate(const char* name, const aclTensor* self, const aclTensor* end, const aclScalar* weight,
                const aclTensor* out, std::uint64_t* workspace, aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const bool in_place = self == out;
    const Tensor from = in_place ? op.in_place(self, "selfRef", kFloats) : op.input(self, "self", kFloats);
    const Tensor target = op.input(end, "end", kFloats);
    const double part = as_float(op.number(weight, "weight"));
    const Tensor to = in_place ? from : op.output(out, "out", kFloats);
    same_type(from, target);
    same_type(from, to);
    need_shape(to, broadcast_shape(from.shape, target.shape));
    op.kernel([=](const Launch& launch) {
      std::vector<double> x = launch(from.broadcast(to.shape)).read();
      const std::vector<double> y = launch(target.broadcast(to.shape)).read();
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += part * (y[i] - x[i]);
      launch(to).write(x);
    });
  });
}

}  // namespace

extern "C" {

int aclnnAddsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, const aclScalar* alpha, aclTensor* out,
                              uint64_t* workspaceSize, aclOpExecutor** executor) {
  return with_scalar("Adds", kSum, self, other, alpha, true, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Adds)

int aclnnInplaceAddGetWorkspaceSize(const aclTensor* selfRef, const aclTensor* other, const aclScalar* alpha,
                                    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return binary_in_place("InplaceAdd", kSum, selfRef, other, alpha, true, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceAdd)

int aclnnInplaceAddsGetWorkspaceSize(const aclTensor* selfRef, const aclScalar* other, const aclScalar* alpha,
                                     uint64_t* workspaceSize, aclOpExecutor** executor) {
  return with_scalar_in_place("InplaceAdds", kSum, selfRef, other, alpha, true, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceAdds)

int aclnnSubGetWorkspaceSize(const aclTensor* self, const aclTensor* other, const aclScalar* alpha, aclTensor* out,
                             uint64_t* workspaceSize, aclOpExecutor** executor) {
  return binary("Sub", kDifference, self, other, alpha, true, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Sub)

int aclnnSubsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, const aclScalar* alpha, aclTensor* out,
                              uint64_t* workspaceSize, aclOpExecutor** executor) {
  return with_scalar("Subs", kDifference, self, other, alpha, true, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Subs)

int aclnnInplaceSubGetWorkspaceSize(aclTensor* selfRef, const aclTensor* other, const aclScalar* alpha,
                                    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return binary_in_place("InplaceSub", kDifference, selfRef, other, alpha, true, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceSub)

int aclnnInplaceSubsGetWorkspaceSize(aclTensor* selfRef, const aclScalar* other, const aclScalar* alpha,
                                     uint64_t* workspaceSize, aclOpExecutor** executor) {
  return with_scalar_in_place("InplaceSubs", kDifference, selfRef, other, alpha, true, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceSubs)

int aclnnMulGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out, uint64_t* workspaceSize,
                             aclOpExecutor** executor) {
  return binary("Mul", kProduct, self, other, nullptr, false, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Mul)

int aclnnMulsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out, uint64_t* workspaceSize,
                              aclOpExecutor** executor) {
  return prepare("Muls", workspaceSize, executor, [&](Operator& op) {
    const Tensor a = op.input(self, "self", kNumbers);
    Number b = op.number(other, "other");
    const aclDataType type = computed(kProduct, promote(a.type, b));
    // BF16 has a kernel of its own for DOUBLE scalars, which takes them as float32; with others it is computed in
    // FLOAT. FLOAT16's takes a scalar that has been rounded to it.
    if (a.type == ACL_BF16 && b.type != ACL_DOUBLE) op.casts(2);
    if (a.type == ACL_FLOAT16) b.value = nearest(b.value, ACL_FLOAT16);
    const Number factor = factor_of(op, nullptr, false, type);
    const Tensor to = op.output(out, "out", kNumbers);
    same_shape(a, to);
    demand_converts(type, to);
    set_kernel(op, kProduct, a, b, factor, to, type);
  });
}
STAND_IN_PHASE_TWO(Muls)

int aclnnInplaceMulGetWorkspaceSize(aclTensor* selfRef, const aclTensor* other, uint64_t* workspaceSize,
                                    aclOpExecutor** executor) {
  return binary_in_place("InplaceMul", kProduct, selfRef, other, nullptr, false, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceMul)

int aclnnInplaceMulsGetWorkspaceSize(aclTensor* selfRef, const aclScalar* other, uint64_t* workspaceSize,
                                     aclOpExecutor** executor) {
  return with_scalar_in_place("InplaceMuls", kProduct, selfRef, other, nullptr, false, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceMuls)

int aclnnDivGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out, uint64_t* workspaceSize,
                             aclOpExecutor** executor) {
  return binary("Div", kQuotient, self, other, nullptr, false, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Div)

int aclnnDivsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out, uint64_t* workspaceSize,
                              aclOpExecutor** executor) {
  return with_scalar("Divs", kQuotient, self, other, nullptr, false, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Divs)

int aclnnInplaceDivGetWorkspaceSize(aclTensor* selfRef, const aclTensor* other, uint64_t* workspaceSize,
                                    aclOpExecutor** executor) {
  return binary_in_place("InplaceDiv", kQuotient, selfRef, other, nullptr, false, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceDiv)

int aclnnInplaceDivsGetWorkspaceSize(aclTensor* selfRef, const aclScalar* other, uint64_t* workspaceSize,
                                     aclOpExecutor** executor) {
  return with_scalar_in_place("InplaceDivs", kQuotient, selfRef, other, nullptr, false, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceDivs)

int aclnnMaximumGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out, uint64_t* workspaceSize,
                                 aclOpExecutor** executor) {
  return binary("Maximum", kLargest, self, other, nullptr, false, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Maximum)

int aclnnMinimumGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out, uint64_t* workspaceSize,
                                 aclOpExecutor** executor) {
  return binary("Minimum", kSmallest, self, other, nullptr, false, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Minimum)

int aclnnPowTensorScalarGetWorkspaceSize(const aclTensor* self, const aclScalar* exponent, const aclTensor* out,
                                         uint64_t* workspaceSize, aclOpExecutor** executor) {
  return with_scalar("PowTensorScalar", kPower, self, exponent, nullptr, false, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(PowTensorScalar)

int aclnnInplacePowTensorScalarGetWorkspaceSize(const aclTensor* self, const aclScalar* exponent,
                                                uint64_t* workspaceSize, aclOpExecutor** executor) {
  return with_scalar_in_place("InplacePowTensorScalar", kPower, self, exponent, nullptr, false, workspaceSize,
                              executor);
}
STAND_IN_PHASE_TWO(InplacePowTensorScalar)

int aclnnPowScalarTensorGetWorkspaceSize(const aclScalar* self, const aclTensor* exponent, const aclTensor* out,
                                         uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("PowScalarTensor", workspaceSize, executor, [&](Operator& op) {
    const Number base = op.number(self, "self");
    const Tensor powers = op.input(exponent, "exponent", kNumbers);
    const Tensor to = op.output(out, "out", kFloats);
    same_shape(powers, to);
    const double number = as_float(base, promote(powers.type, base));
    op.kernel([=](const Launch& launch) {
      std::vector<double> values = launch(powers).read();
      for (double& value : values) value = std::pow(number, value);
      launch(to).write(values);
    });
  });
}
STAND_IN_PHASE_TWO(PowScalarTensor)

int aclnnExpGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return unary("Exp", exponential, self, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Exp)

int aclnnInplaceExpGetWorkspaceSize(aclTensor* selfRef, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return unary_in_place("InplaceExp", exponential, selfRef, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceExp)

int aclnnLogGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return unary("Log", logarithm, self, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Log)

int aclnnInplaceLogGetWorkspaceSize(aclTensor* selfRef, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return unary_in_place("InplaceLog", logarithm, selfRef, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceLog)

int aclnnSqrtGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                              aclOpExecutor** executor) {
  return unary("Sqrt", root, self, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Sqrt)

int aclnnInplaceSqrtGetWorkspaceSize(aclTensor* self, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return unary_in_place("InplaceSqrt", root, self, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceSqrt)

int aclnnRsqrtGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                               aclOpExecutor** executor) {
  return unary("Rsqrt", inverse_root, self, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Rsqrt)

int aclnnInplaceRsqrtGetWorkspaceSize(aclTensor* selfRef, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return unary_in_place("InplaceRsqrt", inverse_root, selfRef, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceRsqrt)

int aclnnReciprocalGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                                    aclOpExecutor** executor) {
  return unary("Reciprocal", reciprocal, self, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Reciprocal)

int aclnnInplaceReciprocalGetWorkspaceSize(const aclTensor* selfRef, uint64_t* workspaceSize,
                                           aclOpExecutor** executor) {
  return unary_in_place("InplaceReciprocal", reciprocal, selfRef, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceReciprocal)

int aclnnSigmoidGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                                 aclOpExecutor** executor) {
  return unary("Sigmoid", logistic, self, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Sigmoid)

int aclnnTanhGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                              aclOpExecutor** executor) {
  return unary("Tanh", hyperbolic_tangent, self, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Tanh)

int aclnnNegGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return sign("Neg", true, self, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Neg)

int aclnnInplaceNegGetWorkspaceSize(aclTensor* selfRef, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return sign("InplaceNeg", true, selfRef, selfRef, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceNeg)

int aclnnAbsGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return sign("Abs", false, self, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Abs)

int aclnnClampGetWorkspaceSize(const aclTensor* self, const aclScalar* clipValueMin, const aclScalar* clipValueMax,
                               aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("Clamp", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kNumbers), to = op.output(out, "out", kNumbers);
    const bool has_low = clipValueMin != nullptr, has_high = clipValueMax != nullptr;
    if (!has_low && !has_high) op.present(nullptr, "one of clipValueMin and clipValueMax");
    const Number low = has_low ? op.number(clipValueMin, "clipValueMin") : Number{};
    const Number high = has_high ? op.number(clipValueMax, "clipValueMax") : Number{};
    same_shape(from, to);
    demand_converts(from.type, to);
    op.kernel([=](const Launch& launch) {
      if (is_integral(from.type)) {
        std::vector<std::int64_t> values = launch(from).read_integers();
        for (std::int64_t& value : values) {
          if (has_low) value = std::max(value, low.integer);
          if (has_high) value = std::min(value, high.integer);
        }
        write_wrapped(launch(to), std::move(values));
      } else {
        std::vector<double> values = launch(from).read();
        const double least = as_float(low, from.type), most = as_float(high, from.type);
        for (double& value : values) {
          if (has_low && value < least) value = least;  // NaN stays
          if (has_high && value > most) value = most;
        }
        launch(to).write(values);
      }
    });
  });
}
STAND_IN_PHASE_TWO(Clamp)

int aclnnAddcmulGetWorkspaceSize(const aclTensor* self, const aclTensor* tensor1, const aclTensor* tensor2,
                                 const aclScalar* value, aclTensor* out, uint64_t* workspaceSize,
                                 aclOpExecutor** executor) {
  return add_product("Addcmul", false, self, tensor1, tensor2, value, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Addcmul)

int aclnnInplaceAddcmulGetWorkspaceSize(const aclTensor* selfRef, const aclTensor* tensor1, const aclTensor* tensor2,
                                        const aclScalar* value, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return add_product("InplaceAddcmul", false, selfRef, tensor1, tensor2, value, selfRef, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceAddcmul)

int aclnnAddcdivGetWorkspaceSize(const aclTensor* self, const aclTensor* tensor1, const aclTensor* tensor2,
                                 const aclScalar* value, const aclTensor* out, uint64_t* workspaceSize,
                                 aclOpExecutor** executor) {
  return add_product("Addcdiv", true, self, tensor1, tensor2, value, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Addcdiv)

int aclnnInplaceAddcdivGetWorkspaceSize(const aclTensor* selfRef, const aclTensor* tensor1, const aclTensor* tensor2,
                                        const aclScalar* value, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return add_product("InplaceAddcdiv", true, selfRef, tensor1, tensor2, value, selfRef, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceAddcdiv)

int aclnnLerpsGetWorkspaceSize(const aclTensor* self, const aclTensor* end, const aclScalar* weight, aclTensor* out,
                               uint64_t* workspaceSize, aclOpExecutor** executor) {
  return interpolate("Lerps", self, end, weight, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Lerps)

int aclnnInplaceLerpsGetWorkspaceSize(aclTensor* selfRef, const aclTensor* end, const aclScalar* weight,
                                      uint64_t* workspaceSize, aclOpExecutor** executor) {
  return interpolate("InplaceLerps", selfRef, end, weight, selfRef, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceLerps)

}  // extern "C"
