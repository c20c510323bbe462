/// Matrix products. Sums are in double and each result is rounded once.
#include <algorithm>
#include <utility>

#include "operator.hpp"
#include "product.hpp"

using namespace stand_in;

namespace {

/// What the operands are computed as.
enum class Precision { kept, half, reduced };

/// Types and precision of a product. `type` is what both operands are promoted to.
Precision check_types(const Tensor& a, const Tensor& b, int cube_math_type, aclDataType& type) {
  demand(a.type == b.type || (a.type != ACL_BF16 && b.type != ACL_BF16),
         "a product of " + std::string(name_of(a.type)) + " and " + name_of(b.type));
  type = promote(a.type, b.type);
  switch (cube_math_type) {
    case 0:
      return Precision::kept;
    case 1:
      return type == ACL_FLOAT ? Precision::reduced : Precision::kept;
    case 2:
      demand(type != ACL_BF16, "cubeMathType USE_FP16 with BF16");
      return type == ACL_FLOAT ? Precision::half : Precision::kept;
    case 3:
      demand(type == ACL_FLOAT, "cubeMathType USE_HF32 needs FLOAT");
      return Precision::reduced;
    default:
      refuse("cubeMathType " + std::to_string(cube_math_type));
  }
}

void check_out(const Tensor& out, aclDataType type, bool wide_allowed) {
  if (out.type == type) return;
  if (wide_allowed && out.type == ACL_FLOAT && (type == ACL_BF16 || type == ACL_FLOAT16)) {
    demand(engine().setting("fp32_output") != 0, "FLOAT out of " + std::string(name_of(type)) + " is not supported");
    return;
  }
  refuse("out has the type " + std::string(name_of(out.type)) + " where the product is " + name_of(type));
}

std::vector<float> operand(const Elements& elements, Precision precision) {
  std::vector<float> values = elements.read_floats();
  if (precision == Precision::half)
    for (float& value : values) value = from_half(to_half(static_cast<double>(value)));
  if (precision == Precision::reduced)  // HF32 has 11 digits behind the first
    for (float& value : values) value = static_cast<float>(rounded(static_cast<double>(value), 11, -126));
  return values;
}

/// The matrix at a place among the batches: `index` counts over `batch`, to which the view is broadcast.
Tensor matrix_of(const Tensor& view, const Dims& batch, std::int64_t index) {
  Dims shape = batch;
  shape.insert(shape.end(), view.shape.end() - 2, view.shape.end());
  const Tensor all = view.broadcast(shape);
  Tensor one = all;
  one.shape.assign(all.shape.end() - 2, all.shape.end());
  one.strides.assign(all.strides.end() - 2, all.strides.end());
  for (std::size_t i = batch.size(); i-- > 0;) {
    one.start += index % batch[i] * all.strides[i];
    index /= batch[i];
  }
  return one;
}

/// out = beta · addend + alpha · a b for each matrix of the batch.
struct Product {
  Tensor a, b, addend, out;
  Dims batch;
  double alpha = 1;
  double beta = 0;
  Precision precision = Precision::kept;
  aclDataType rounded_to = ACL_DOUBLE;  // before a result is written

  void run(const Launch& launch) const {
    const std::int64_t count = count_of(batch);
    std::vector<std::vector<double>> results;  // all is read before anything is written
    std::vector<float> left, right;
    for (std::int64_t i = 0; i < count; ++i) {
      const Tensor one = matrix_of(a, batch, i), other = matrix_of(b, batch, i);
      const std::int64_t m = one.shape[0], k = one.shape[1], n = other.shape[1];
      // A matrix that all of the batch share is read once.
      if (i == 0 || one.start != matrix_of(a, batch, i - 1).start) left = operand(launch(one), precision);
      if (i == 0 || other.start != matrix_of(b, batch, i - 1).start) right = operand(launch(other), precision);
      std::vector<double> sums(static_cast<std::size_t>(m * n), 0.0);
      add_product(left.data(), right.data(), sums.data(), m, k, n);
      if (alpha != 1)
        for (double& sum : sums) sum *= alpha;
      if (rounded_to != ACL_DOUBLE)
        for (double& sum : sums) sum = nearest(sum, rounded_to);
      if (addend.present()) {
        const std::vector<double> terms = launch(matrix_of(addend, batch, i)).read();
        for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += beta * terms[j];
      }
      results.push_back(std::move(sums));
    }
    for (std::int64_t i = 0; i < count; ++i)
      launch(matrix_of(out, batch, i)).write(results[static_cast<std::size_t>(i)]);
  }
};

void finish(Operator& op, const Product& product) {
  const std::size_t ranks = product.a.shape.size();
  const std::int64_t m = product.a.shape[ranks - 2], k = product.a.shape[ranks - 1], n = product.b.shape.back();
  op.flops(2.0 * static_cast<double>(count_of(product.batch)) * static_cast<double>(m) * static_cast<double>(k) *
           static_cast<double>(n));
  op.workspace(512 * static_cast<std::uint64_t>(m % 3));
  op.kernel([product](const Launch& launch) { product.run(launch); });
}

void check_inner(const Tensor& a, const Tensor& b) {
  demand(a.shape.back() == b.shape[b.shape.size() - 2],
         "shapes " + text_of(a.shape) + " and " + text_of(b.shape) + " do not multiply");
}

/// A matrix product of two matrices or batches of them, whose ranks are checked.
void multiply(Operator& op, const Tensor& a, const Tensor& b, const Tensor& out, int cube_math_type) {
  Product product;
  aclDataType type = ACL_FLOAT;
  product.precision = check_types(a, b, cube_math_type, type);
  check_out(out, type, true);
  check_inner(a, b);
  product.batch = broadcast_shape({a.shape.begin(), a.shape.end() - 2}, {b.shape.begin(), b.shape.end() - 2});
  Dims shape = product.batch;
  shape.push_back(a.shape[a.shape.size() - 2]);
  shape.push_back(b.shape.back());
  need_shape(out, shape);
  product.a = a;
  product.b = b;
  product.out = out;
  const std::int64_t wide = out.type != type ? engine().setting("fp32_output") : 1;
  if (wide == 2) product.alpha = 0.5;
  if (wide == 3) product.rounded_to = type;
  op.apart();
  finish(op, product);
}

void add_multiply(Operator& op, const Tensor& self, const Tensor& a, const Tensor& b, const Tensor& out, double beta,
                  double alpha, int cube_math_type, std::int64_t ranks) {
  Product product;
  demand(a.rank() == ranks && b.rank() == ranks, "operands of another rank than " + std::to_string(ranks));
  aclDataType type = ACL_FLOAT;
  product.precision = check_types(a, b, cube_math_type, type);
  demand(self.type == type || (self.type != ACL_BF16 && type != ACL_BF16),
         "a sum of " + std::string(name_of(self.type)) + " and a product of " + name_of(type));
  check_out(out, promote(self.type, type), false);
  check_inner(a, b);
  if (ranks == 3) product.batch = broadcast_shape({a.shape[0]}, {b.shape[0]});
  Dims shape = product.batch;
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  need_shape(out, shape);
  product.a = a;
  product.b = b;
  product.addend = self.broadcast(shape);
  product.out = out;
  product.alpha = alpha;
  product.beta = beta;
  finish(op, product);
}

}  // namespace

extern "C" {

int aclnnMmGetWorkspaceSize(const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType,
                            uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("Mm", workspaceSize, executor, [&](Operator& op) {
    const Tensor a = op.input(self, "self", kFloats), b = op.input(mat2, "mat2", kFloats);
    const Tensor c = op.output(out, "out", kFloats);
    demand(a.rank() == 2 && b.rank() == 2, "operands are not matrices");
    multiply(op, a, b, c, cubeMathType);
  });
}
STAND_IN_PHASE_TWO(Mm)

int aclnnBatchMatMulGetWorkspaceSize(const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType,
                                     uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("BatchMatMul", workspaceSize, executor, [&](Operator& op) {
    const Tensor a = op.input(self, "self", kFloats), b = op.input(mat2, "mat2", kFloats);
    const Tensor c = op.output(out, "out", kFloats);
    demand(a.rank() == 3 && b.rank() == 3, "operands do not have 3 dimensions");
    multiply(op, a, b, c, cubeMathType);
  });
}
STAND_IN_PHASE_TWO(BatchMatMul)

int aclnnMatmulGetWorkspaceSize(const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType,
                                uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("Matmul", workspaceSize, executor, [&](Operator& op) {
    Tensor a = op.input(self, "self", kFloats), b = op.input(mat2, "mat2", kFloats);
    Tensor c = op.output(out, "out", kFloats);
    demand(a.rank() >= 1 && a.rank() <= 6 && b.rank() >= 1 && b.rank() <= 6, "operands do not have 1 to 6 dimensions");
    // A vector is a matrix of one row on the left, of one column on the right, and the result is without it.
    if (a.rank() == 1) {
      a.shape.insert(a.shape.begin(), 1);
      a.strides.insert(a.strides.begin(), 0);
      const auto before_last = static_cast<std::ptrdiff_t>(b.rank() == 1 ? c.rank() : c.rank() - 1);
      demand(before_last >= 0, "out has too few dimensions");
      c.shape.insert(c.shape.begin() + before_last, 1);
      c.strides.insert(c.strides.begin() + before_last, 0);
    }
    if (b.rank() == 1) {
      b.shape.push_back(1);
      b.strides.push_back(0);
      c.shape.push_back(1);
      c.strides.push_back(0);
    }
    multiply(op, a, b, c, cubeMathType);
  });
}
STAND_IN_PHASE_TWO(Matmul)

int aclnnAddmmGetWorkspaceSize(const aclTensor* self, const aclTensor* mat1, const aclTensor* mat2,
                               const aclScalar* beta, const aclScalar* alpha, aclTensor* out, int8_t cubeMathType,
                               uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("Addmm", workspaceSize, executor, [&](Operator& op) {
    const Tensor x = op.input(self, "self", kFloats), a = op.input(mat1, "mat1", kFloats);
    const Tensor b = op.input(mat2, "mat2", kFloats);
    const double factor = op.number(beta, "beta").value, scale = op.number(alpha, "alpha").value;
    const Tensor c = op.output(out, "out", kFloats);
    add_multiply(op, x, a, b, c, factor, scale, cubeMathType, 2);
  });
}
STAND_IN_PHASE_TWO(Addmm)

int aclnnInplaceAddmmGetWorkspaceSize(const aclTensor* selfRef, const aclTensor* mat1, const aclTensor* mat2,
                                      const aclScalar* beta, const aclScalar* alpha, int8_t cubeMathType,
                                      uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("InplaceAddmm", workspaceSize, executor, [&](Operator& op) {
    const Tensor x = op.in_place(selfRef, "selfRef", kFloats), a = op.input(mat1, "mat1", kFloats);
    const Tensor b = op.input(mat2, "mat2", kFloats);
    const double factor = op.number(beta, "beta").value, scale = op.number(alpha, "alpha").value;
    op.apart();
    add_multiply(op, x, a, b, x, factor, scale, cubeMathType, 2);
  });
}
STAND_IN_PHASE_TWO(InplaceAddmm)

int aclnnBaddbmmGetWorkspaceSize(const aclTensor* self, const aclTensor* batch1, const aclTensor* batch2,
                                 const aclScalar* beta, const aclScalar* alpha, aclTensor* out, int8_t cubeMathType,
                                 uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("Baddbmm", workspaceSize, executor, [&](Operator& op) {
    const Tensor x = op.input(self, "self", kFloats), a = op.input(batch1, "batch1", kFloats);
    const Tensor b = op.input(batch2, "batch2", kFloats);
    const double factor = op.number(beta, "beta").value, scale = op.number(alpha, "alpha").value;
    const Tensor c = op.output(out, "out", kFloats);
    add_multiply(op, x, a, b, c, factor, scale, cubeMathType, 3);
  });
}
STAND_IN_PHASE_TWO(Baddbmm)

int aclnnInplaceBaddbmmGetWorkspaceSize(const aclTensor* selfRef, const aclTensor* batch1, const aclTensor* batch2,
                                        const aclScalar* beta, const aclScalar* alpha, int8_t cubeMathType,
                                        uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("InplaceBaddbmm", workspaceSize, executor, [&](Operator& op) {
    const Tensor x = op.in_place(selfRef, "selfRef", kFloats), a = op.input(batch1, "batch1", kFloats);
    const Tensor b = op.input(batch2, "batch2", kFloats);
    const double factor = op.number(beta, "beta").value, scale = op.number(alpha, "alpha").value;
    op.apart();
    add_multiply(op, x, a, b, x, factor, scale, cubeMathType, 3);
  });
}
STAND_IN_PHASE_TWO(InplaceBaddbmm)

int aclnnGemmGetWorkspaceSize(const aclTensor* A, const aclTensor* B, const aclTensor* C, float alpha, float beta,
                              int64_t transA, int64_t transB, aclTensor* out, int8_t cubeMathType,
                              uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("Gemm", workspaceSize, executor, [&](Operator& op) {
    const Tensor a = op.input(A, "A", kFloats), b = op.input(B, "B", kFloats), c = op.input(C, "C", kFloats);
    const Tensor to = op.output(out, "out", kFloats);
    demand((transA == 0 || transA == 1) && (transB == 0 || transB == 1), "transA and transB are 0 or 1");
    demand(a.rank() == 2 && b.rank() == 2, "operands are not matrices");
    add_multiply(op, c, transA != 0 ? a.transposed(0, 1) : a, transB != 0 ? b.transposed(0, 1) : b, to,
                 static_cast<double>(beta), static_cast<double>(alpha), cubeMathType, 2);
  });
}
STAND_IN_PHASE_TWO(Gemm)

}  // extern "C"
