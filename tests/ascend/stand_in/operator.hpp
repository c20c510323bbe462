/// How an operator of the stand-in is written.
///
/// Phase 1 is a function that looks at its arguments through an Operator, refuses what the documents do not allow and
/// leaves a kernel behind; phase 2 is the same for all:
///
///   extern "C" {
///   int aclnnNegGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* workspaceSize,
///                                aclOpExecutor** executor) {
///     return prepare("Neg", workspaceSize, executor, [&](Operator& op) {
///       const Tensor x = op.input(self, "self", kFloats), y = op.output(out, "out", kFloats);
///       demand(x.shape == y.shape, "self and out have different shapes");
///       op.kernel([=](const Launch& launch) {
///         std::vector<double> values = launch(x).read();
///         for (double& value : values) value = -value;
///         launch(y).write(values);
///       });
///     });
///   }
///   STAND_IN_PHASE_TWO(Neg)
///   }
///
/// What is passed to prepare() runs in phase 1 and may capture by reference; a kernel runs later, on the stream's
/// thread, and captures copies. A kernel reads all that it reads before it writes, so that operands may be the same
/// memory. operators_add.cpp is a whole example.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "engine.hpp"
#include "meta.hpp"
#include "numbers.hpp"

namespace stand_in {

/// Phase 1 ends with this: the operator does not take such arguments.
struct Refusal {
  int code = ACLNN_ERR_PARAM_INVALID;
  std::string text;
};

[[noreturn]] void refuse(const std::string& text, int code = ACLNN_ERR_PARAM_INVALID);
void demand(bool condition, const char* text);
void demand(bool condition, const std::string& text);

using Types = std::vector<aclDataType>;
inline const Types kFloats = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
inline const Types kIndices = {ACL_INT32, ACL_INT64};
inline const Types kBools = {ACL_BOOL};
/// All that the element-wise operators compute with.
inline const Types kNumbers = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16,  ACL_DOUBLE, ACL_INT8,
                               ACL_UINT8, ACL_INT16,   ACL_INT32, ACL_INT64,  ACL_BOOL};

std::string text_of(const Dims& shape);
std::int64_t count_of(const Dims& shape);
/// Strides of a contiguous tensor.
Dims strides_of(const Dims& shape);
/// The shape that two shapes broadcast to; refuses where they do not.
Dims broadcast_shape(const Dims& a, const Dims& b);
/// The type in which an element-wise operator computes with both (§ type promotion); refuses where there is none.
aclDataType promote(aclDataType a, aclDataType b);

/// A view of an operand, as phase 1 sees it. Copies are views of the same operand.
struct Tensor {
  std::string name;
  aclDataType type = ACL_DT_UNDEFINED;
  Dims shape;
  Dims strides;
  std::int64_t start = 0;  // elements from the operand's first
  std::size_t operand = ~std::size_t{0};

  /// Whether the optional operand was given.
  bool present() const { return operand != ~std::size_t{0}; }
  std::int64_t rank() const { return static_cast<std::int64_t>(shape.size()); }
  std::int64_t count() const { return count_of(shape); }
  /// The dimension's index from 0; negative ones count from the end. Refuses what is outside.
  std::size_t dimension(std::int64_t dim) const;
  std::int64_t size(std::int64_t dim) const { return shape[dimension(dim)]; }
  bool contiguous() const;
  /// The same elements with stride 0 where a dimension of 1 (or none) becomes larger; refuses where it cannot.
  Tensor broadcast(const Dims& to) const;
  Tensor transposed(std::int64_t dim0, std::int64_t dim1) const;
  /// Elements [from, from + length) of a dimension.
  Tensor narrowed(std::int64_t dim, std::int64_t from, std::int64_t length) const;
};

/// The memory of a view while a kernel runs.
class Elements {
 public:
  Elements(unsigned char* data, const Tensor& tensor)
      : type(tensor.type), shape(tensor.shape), strides(tensor.strides), data_(data) {}

  const aclDataType type;
  const Dims shape;
  const Dims strides;

  std::int64_t count() const { return count_of(shape); }
  /// All elements, the last dimension fastest.
  std::vector<double> read() const;
  std::vector<float> read_floats() const;  // exact for FLOAT, FLOAT16, BF16 and small integers
  std::vector<std::int64_t> read_integers() const;
  /// Rounds each value once, to the nearest.
  void write(const std::vector<double>& values) const;
  void write_integers(const std::vector<std::int64_t>& values) const;

  /// Single elements, by their distance from the first in elements (as strides count).
  double at(std::int64_t place) const { return load(bytes(place), type); }
  void put(std::int64_t place, double value) const { store(bytes(place), type, value); }
  std::int64_t integer_at(std::int64_t place) const { return load_integer(bytes(place), type); }
  void put_integer(std::int64_t place, std::int64_t value) const { store_integer(bytes(place), type, value); }
  unsigned char* bytes(std::int64_t place) const { return data_ + place * static_cast<std::int64_t>(size_of(type)); }
  /// The places of all elements, the last dimension fastest.
  std::vector<std::int64_t> places() const;

 private:
  unsigned char* data_;
};

/// Handed to a kernel: the operands' memory.
class Launch {
 public:
  explicit Launch(std::vector<unsigned char*> first) : first_(std::move(first)) {}
  Elements operator()(const Tensor& tensor) const {
    unsigned char* data = first_.at(tensor.operand);
    return {data + tensor.start * static_cast<std::int64_t>(size_of(tensor.type)), tensor};
  }
  /// The first element's memory, for what is not read element by element.
  unsigned char* bytes(const Tensor& tensor) const { return first_.at(tensor.operand); }

  /// Thrown by a kernel that real hardware would stop with an exception.
  struct Trap {
    int code = ACL_ERROR_RT_AICORE_EXCEPTION;
    std::string text;
  };

 private:
  std::vector<unsigned char*> first_;
};

/// A scalar argument.
struct Number {
  aclDataType type = ACL_DT_UNDEFINED;
  double value = 0;
  std::int64_t integer = 0;
};

/// Phase 1 of one call.
class Operator {
 public:
  explicit Operator(const char* name) { plan_.name = name; }

  /// Operands. Refused are null (161001), types that are not listed, other formats than the plain ones, more than 8
  /// dimensions, and (also faults) addresses that are not aligned to 32 bytes and views that leave their storage.
  Tensor input(const aclTensor* tensor, const char* name, const Types& types);
  Tensor optional_input(const aclTensor* tensor, const char* name, const Types& types);
  Tensor output(const aclTensor* tensor, const char* name, const Types& types);
  /// Of an operator whose entry point the vendor generates: it makes inputs contiguous and copies back what is read and
  /// written alone, so that a result is written without gaps whatever its strides are. Gaps are refused, unless the
  /// setting `gaps` wants what the vendor's do.
  Tensor packed_output(const aclTensor* tensor, const char* name, const Types& types);
  Tensor in_place(const aclTensor* tensor, const char* name, const Types& types);
  std::vector<Tensor> inputs(const aclTensorList* list, const char* name, const Types& types);
  std::vector<Tensor> outputs(const aclTensorList* list, const char* name, const Types& types);
  std::vector<Tensor> in_place(const aclTensorList* list, const char* name, const Types& types);
  Number number(const aclScalar* scalar, const char* name);
  Dims numbers(const aclIntArray* array, const char* name);
  /// For pointers that must not be null though nothing is read of them.
  void present(const void* pointer, const char* name);

  /// Outputs must share no memory with other operands. Without it they may be the same view as one.
  void apart() { apart_ = true; }
  void flops(double count) { plan_.flops = count; }
  /// Kernels that only convert operands, which the operator puts before and behind its own.
  void casts(int count) { plan_.casts = count; }
  /// The workspace to ask for; without it some operators ask for one that they do not need.
  void workspace(std::uint64_t bytes) { workspace_ = static_cast<std::int64_t>(bytes); }
  /// Without a kernel, and where all outputs are empty, phase 2 launches nothing.
  void kernel(std::function<void(const Launch&)> kernel) { plan_.kernel = std::move(kernel); }

  /// The end of phase 1.
  Plan finish();

 private:
  Tensor add(const aclTensor* tensor, const std::string& name, const Types& types, bool reads, bool writes,
             std::size_t place);
  std::vector<Tensor> add(const aclTensorList* list, const char* name, const Types& types, bool reads, bool writes);
  void check_overlaps() const;

  Plan plan_;
  bool apart_ = false;
  std::int64_t workspace_ = -1;
  std::size_t arguments_ = 0;
};

/// Sums whose order differs from run to run, and with it their last bits. `fixed`: Engine::fixed_order of phase 1.
void in_any_order(std::vector<double>& sums, bool fixed);

int prepare(const char* name, std::uint64_t* workspace_size, aclOpExecutor** executor,
            const std::function<void(Operator&)>& describe);
int execute(const char* name, void* workspace, std::uint64_t workspace_size, aclOpExecutor* executor,
            aclrtStream stream);

/// Demands for what many operators ask.
void same_shape(const Tensor& a, const Tensor& b);
void same_type(const Tensor& a, const Tensor& b);
void need_shape(const Tensor& tensor, const Dims& shape);
void need_contiguous(const Tensor& tensor);

}  // namespace stand_in

#define STAND_IN_PHASE_TWO(name)                                                                          \
  int aclnn##name(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream) { \
    return stand_in::execute(#name, workspace, workspaceSize, executor, stream);                          \
  }
