/// Comparisons, truth values, and choices between elements.
#include <cmath>
#include <functional>

#include "elementwise.hpp"

using namespace stand_in;

namespace {

using Compare = bool (*)(double, double);
using CompareIntegers = bool (*)(std::int64_t, std::int64_t);

struct Relation {
  Compare real;
  CompareIntegers whole;
};

template <class F>
constexpr Relation relation() {
  return {[](double a, double b) { return F{}(a, b); }, [](std::int64_t a, std::int64_t b) { return F{}(a, b); }};
}

const Relation kEqual = relation<std::equal_to<>>(), kUnequal = relation<std::not_equal_to<>>(),
               kGreater = relation<std::greater<>>(), kLess = relation<std::less<>>();

/// The kernel of out = whether a and the scalar b are in that relation.
void compare(Operator& op, const Relation& holds, const Tensor& a, const Number& b, const Tensor& out) {
  const aclDataType type = promote(a.type, b);
  op.kernel([=](const Launch& launch) {
    std::vector<double> truth;
    if (is_integral(type)) {
      for (const std::int64_t value : launch(a).read_integers()) truth.push_back(holds.whole(value, b.integer) ? 1 : 0);
    } else {
      const double number = as_float(b, type);
      for (const double value : launch(a).read()) truth.push_back(holds.real(value, number) ? 1 : 0);
    }
    launch(out).write(truth);
  });
}

int compare(const char* name, const Relation& holds, const aclTensor* self, const aclScalar* other,
            const aclTensor* out, std::uint64_t* workspace, aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const Tensor a = op.input(self, "self", kNumbers);
    const Number b = op.number(other, "other");
    const Tensor to = op.output(out, "out", kNumbers);
    same_shape(a, to);
    compare(op, holds, a, b, to);
  });
}

/// out = f(self) for each element, a truth value.
int examine(const char* name, bool (*f)(double), const Types& types, const Types& results, const aclTensor* self,
            const aclTensor* out, std::uint64_t* workspace, aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const bool in_place = self == out;
    const Tensor from = in_place ? op.in_place(self, "selfRef", types) : op.input(self, "self", types);
    const Tensor to = in_place ? from : op.output(out, "out", results);
    same_shape(from, to);
    op.kernel([=](const Launch& launch) {
      std::vector<double> values = launch(from).read();
      for (double& value : values) value = f(value) ? 1 : 0;
      launch(to).write(values);
    });
  });
}

bool is_zero(double value) { return value == 0; }
bool is_finite(double value) { return std::isfinite(value); }
bool is_infinite(double value) { return std::isinf(value); }

int combine(const char* name, bool both, const aclTensor* self, const aclTensor* other, const aclTensor* out,
            std::uint64_t* workspace, aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const Tensor a = op.input(self, "self", kNumbers), b = op.input(other, "other", kNumbers);
    const Tensor to = op.output(out, "out", kNumbers);
    need_shape(to, broadcast_shape(a.shape, b.shape));
    op.kernel([=](const Launch& launch) {
      std::vector<double> x = launch(a.broadcast(to.shape)).read();
      const std::vector<double> y = launch(b.broadcast(to.shape)).read();
      for (std::size_t i = 0; i < x.size(); ++i) {
        const bool left = x[i] != 0, right = y[i] != 0;
        x[i] = (both ? left && right : left || right) ? 1 : 0;
      }
      launch(to).write(x);
    });
  });
}

const Types kConditions = {ACL_BOOL, ACL_UINT8};

}  // namespace

extern "C" {

int aclnnEqScalarGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out,
                                  uint64_t* workspaceSize, aclOpExecutor** executor) {
  return compare("EqScalar", kEqual, self, other, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(EqScalar)

int aclnnInplaceEqScalarGetWorkspaceSize(const aclTensor* selfRef, const aclScalar* other, uint64_t* workspaceSize,
                                         aclOpExecutor** executor) {
  return prepare("InplaceEqScalar", workspaceSize, executor, [&](Operator& op) {
    const Tensor a = op.in_place(selfRef, "selfRef", kNumbers);
    compare(op, kEqual, a, op.number(other, "other"), a);
  });
}
STAND_IN_PHASE_TWO(InplaceEqScalar)

int aclnnNeScalarGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out,
                                  uint64_t* workspaceSize, aclOpExecutor** executor) {
  return compare("NeScalar", kUnequal, self, other, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(NeScalar)

int aclnnGtScalarGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out,
                                  uint64_t* workspaceSize, aclOpExecutor** executor) {
  return compare("GtScalar", kGreater, self, other, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(GtScalar)

int aclnnLtScalarGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out,
                                  uint64_t* workspaceSize, aclOpExecutor** executor) {
  return compare("LtScalar", kLess, self, other, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(LtScalar)

int aclnnEqTensorGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out,
                                  uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("EqTensor", workspaceSize, executor, [&](Operator& op) {
    const Tensor a = op.input(self, "self", kNumbers), b = op.input(other, "other", kNumbers);
    const bool whole = is_integral(promote(a.type, b.type));
    const Tensor to = op.output(out, "out", kNumbers);
    need_shape(to, broadcast_shape(a.shape, b.shape));
    op.kernel([=](const Launch& launch) {
      const Elements left = launch(a.broadcast(to.shape)), right = launch(b.broadcast(to.shape));
      std::vector<double> truth(static_cast<std::size_t>(to.count()));
      const auto equal = [&](const auto& x, const auto& y) {
        for (std::size_t i = 0; i < truth.size(); ++i) truth[i] = x[i] == y[i] ? 1 : 0;
      };
      if (whole) {
        equal(left.read_integers(), right.read_integers());
      } else {
        equal(left.read(), right.read());
      }
      launch(to).write(truth);
    });
  });
}
STAND_IN_PHASE_TWO(EqTensor)

int aclnnIsFiniteGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                                  aclOpExecutor** executor) {
  return examine("IsFinite", is_finite, kNumbers, kBools, self, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(IsFinite)

int aclnnIsInfGetWorkspaceSize(const aclTensor* x, const aclTensor* out, uint64_t* workspaceSize,
                               aclOpExecutor** executor) {
  return examine("IsInf", is_infinite, kFloats, kBools, x, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(IsInf)

int aclnnLogicalNotGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
                                    aclOpExecutor** executor) {
  return examine("LogicalNot", is_zero, kNumbers, kNumbers, self, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(LogicalNot)

int aclnnInplaceLogicalNotGetWorkspaceSize(aclTensor* selfRef, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return examine("InplaceLogicalNot", is_zero, kNumbers, kNumbers, selfRef, selfRef, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceLogicalNot)

int aclnnLogicalAndGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out,
                                    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return combine("LogicalAnd", true, self, other, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(LogicalAnd)

int aclnnLogicalOrGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out,
                                   uint64_t* workspaceSize, aclOpExecutor** executor) {
  return combine("LogicalOr", false, self, other, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(LogicalOr)

int aclnnSWhereGetWorkspaceSize(const aclTensor* condition, const aclTensor* self, const aclTensor* other,
                                aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("SWhere", workspaceSize, executor, [&](Operator& op) {
    const Tensor choice = op.input(condition, "condition", kConditions);
    const Tensor a = op.input(self, "self", kNumbers), b = op.input(other, "other", kNumbers);
    const aclDataType type = promote(a.type, b.type);
    const Tensor to = op.output(out, "out", kNumbers);
    need_shape(to, broadcast_shape(choice.shape, broadcast_shape(a.shape, b.shape)));
    demand_converts(type, to);
    op.kernel([=](const Launch& launch) {
      const std::vector<double> first = launch(choice.broadcast(to.shape)).read();
      const Elements left = launch(a.broadcast(to.shape)), right = launch(b.broadcast(to.shape));
      const auto choose = [&](auto x, const auto& y) {
        for (std::size_t i = 0; i < x.size(); ++i)
          if (first[i] == 0) x[i] = y[i];
        return x;
      };
      if (is_integral(type)) {
        launch(to).write_integers(choose(left.read_integers(), right.read_integers()));
      } else {
        launch(to).write(choose(left.read(), right.read()));
      }
    });
  });
}
STAND_IN_PHASE_TWO(SWhere)

int aclnnInplaceMaskedFillScalarGetWorkspaceSize(aclTensor* selfRef, const aclTensor* mask, const aclScalar* value,
                                                 uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("InplaceMaskedFillScalar", workspaceSize, executor, [&](Operator& op) {
    const Tensor to = op.in_place(selfRef, "selfRef", kNumbers);
    const Tensor masked = op.input(mask, "mask", kBools);
    const Number number = op.number(value, "value");
    need_shape(to, broadcast_shape(to.shape, masked.shape));
    op.kernel([=](const Launch& launch) {
      const std::vector<double> fills = launch(masked.broadcast(to.shape)).read();
      const Elements elements = launch(to);
      const std::vector<std::int64_t> places = elements.places();
      for (std::size_t i = 0; i < places.size(); ++i) {
        if (fills[i] == 0) continue;
        if (is_integral(to.type) && is_integral(number.type)) {
          elements.put_integer(places[i], wrapped(number.integer, to.type));
        } else {
          elements.put(places[i], number.value);
        }
      }
    });
  });
}
STAND_IN_PHASE_TWO(InplaceMaskedFillScalar)

}  // extern "C"
