#include "operator.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

namespace stand_in {

void refuse(const std::string& text, int code) { throw Refusal{code, text}; }
void demand(bool condition, const char* text) {
  if (!condition) refuse(text);
}
void demand(bool condition, const std::string& text) {
  if (!condition) refuse(text);
}

std::string text_of(const Dims& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

std::int64_t count_of(const Dims& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

Dims strides_of(const Dims& shape) {
  Dims strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

Dims broadcast_shape(const Dims& a, const Dims& b) {
  Dims shape(std::max(a.size(), b.size()), 1);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) refuse("shapes " + text_of(a) + " and " + text_of(b) + " do not broadcast");
    shape[shape.size() - 1 - i] = x == 1 ? y : x;
  }
  return shape;
}

aclDataType promote(aclDataType a, aclDataType b) {
  if (a == b) return a;
  if (is_floating(a) && is_floating(b)) {
    if (a == ACL_DOUBLE || b == ACL_DOUBLE) return ACL_DOUBLE;
    return ACL_FLOAT;  // so too for one FLOAT16 and one BF16
  }
  if (is_floating(a)) return a;
  if (is_floating(b)) return b;
  if (a == ACL_BOOL) return b;
  if (b == ACL_BOOL) return a;
  const auto order = [](aclDataType type) {
    switch (type) {
      case ACL_UINT8:
        return 0;
      case ACL_INT8:
        return 1;
      case ACL_INT16:
        return 2;
      case ACL_INT32:
        return 3;
      case ACL_INT64:
        return 4;
      default:
        return -1;
    }
  };
  const int x = order(a), y = order(b);
  if (x < 0 || y < 0) refuse(std::string("no common type of ") + name_of(a) + " and " + name_of(b));
  if (std::min(x, y) == 0 && std::max(x, y) == 1) return ACL_INT16;
  return x > y ? a : b;
}

std::size_t Tensor::dimension(std::int64_t dim) const {
  const std::int64_t ranks = std::max<std::int64_t>(rank(), 1);
  if (dim < -ranks || dim >= ranks)
    refuse("dimension " + std::to_string(dim) + " of " + name + " with shape " + text_of(shape));
  return static_cast<std::size_t>(dim < 0 ? dim + ranks : dim);
}

bool Tensor::contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

Tensor Tensor::broadcast(const Dims& to) const {
  Tensor view = *this;
  if (to.size() < shape.size())
    refuse(name + " with shape " + text_of(shape) + " does not broadcast to " + text_of(to));
  view.shape = to;
  view.strides.assign(to.size(), 0);
  const std::size_t shift = to.size() - shape.size();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == to[shift + i]) {
      view.strides[shift + i] = strides[i];
    } else if (shape[i] != 1) {
      refuse(name + " with shape " + text_of(shape) + " does not broadcast to " + text_of(to));
    }
  }
  return view;
}

Tensor Tensor::transposed(std::int64_t dim0, std::int64_t dim1) const {
  Tensor view = *this;
  std::swap(view.shape[dimension(dim0)], view.shape[dimension(dim1)]);
  std::swap(view.strides[dimension(dim0)], view.strides[dimension(dim1)]);
  return view;
}

Tensor Tensor::narrowed(std::int64_t dim, std::int64_t from, std::int64_t length) const {
  Tensor view = *this;
  const std::size_t at = dimension(dim);
  demand(from >= 0 && length >= 0 && from + length <= shape[at], "a part outside of " + name);
  view.shape[at] = length;
  view.start += from * strides[at];
  return view;
}

namespace {

/// Calls f(place, elements, stride) for each row, that is for each choice of all indices but the last.
template <class F>
void rows(const Dims& shape, const Dims& strides, F f) {
  if (count_of(shape) == 0) return;
  if (shape.empty()) return f(std::int64_t{0}, std::int64_t{1}, std::int64_t{1});
  const std::size_t outer = shape.size() - 1;
  Dims index(outer, 0);
  std::int64_t place = 0;
  for (;;) {
    f(place, shape[outer], strides[outer]);
    std::size_t i = outer;
    for (;;) {
      if (i == 0) return;
      --i;
      place += strides[i];
      if (++index[i] < shape[i]) break;
      place -= strides[i] * shape[i];
      index[i] = 0;
    }
  }
}

}  // namespace

std::vector<double> Elements::read() const {
  std::vector<double> values(static_cast<std::size_t>(count()));
  double* to = values.data();
  rows(shape, strides, [&](std::int64_t place, std::int64_t length, std::int64_t stride) {
    for (std::int64_t i = 0; i < length; ++i) *to++ = at(place + i * stride);
  });
  return values;
}

std::vector<float> Elements::read_floats() const {
  std::vector<float> values(static_cast<std::size_t>(count()));
  float* to = values.data();
  rows(shape, strides, [&](std::int64_t place, std::int64_t length, std::int64_t stride) {
    const unsigned char* from = bytes(place);
    const std::int64_t step = stride * static_cast<std::int64_t>(size_of(type));
    const auto convert = [&](auto narrow, auto wide) {
      for (std::int64_t i = 0; i < length; ++i) {
        std::memcpy(&narrow, from + i * step, sizeof narrow);
        *to++ = wide(narrow);
      }
    };
    if (type == ACL_FLOAT) {
      convert(float{}, [](float value) { return value; });
    } else if (type == ACL_BF16) {
      convert(std::uint16_t{}, from_bf16);
    } else if (type == ACL_FLOAT16) {
      convert(std::uint16_t{}, from_half);
    } else {
      for (std::int64_t i = 0; i < length; ++i) *to++ = static_cast<float>(load(from + i * step, type));
    }
  });
  return values;
}

std::vector<std::int64_t> Elements::read_integers() const {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count()));
  std::int64_t* to = values.data();
  rows(shape, strides, [&](std::int64_t place, std::int64_t length, std::int64_t stride) {
    for (std::int64_t i = 0; i < length; ++i) *to++ = integer_at(place + i * stride);
  });
  return values;
}

void Elements::write(const std::vector<double>& values) const {
  const double* from = values.data();
  if (values.size() != static_cast<std::size_t>(count()))
    throw Launch::Trap{ACL_ERROR_RT_AICORE_EXCEPTION, "a kernel wrote another number of elements"};
  rows(shape, strides, [&](std::int64_t place, std::int64_t length, std::int64_t stride) {
    for (std::int64_t i = 0; i < length; ++i) put(place + i * stride, *from++);
  });
}

void Elements::write_integers(const std::vector<std::int64_t>& values) const {
  const std::int64_t* from = values.data();
  if (values.size() != static_cast<std::size_t>(count()))
    throw Launch::Trap{ACL_ERROR_RT_AICORE_EXCEPTION, "a kernel wrote another number of elements"};
  rows(shape, strides, [&](std::int64_t place, std::int64_t length, std::int64_t stride) {
    for (std::int64_t i = 0; i < length; ++i) put_integer(place + i * stride, *from++);
  });
}

std::vector<std::int64_t> Elements::places() const {
  std::vector<std::int64_t> all;
  all.reserve(static_cast<std::size_t>(count()));
  rows(shape, strides, [&](std::int64_t place, std::int64_t length, std::int64_t stride) {
    for (std::int64_t i = 0; i < length; ++i) all.push_back(place + i * stride);
  });
  return all;
}

// Phase 1

namespace {

/// Bytes from the operand's first element to behind its last.
std::int64_t extent(const Operand& operand) {
  if (count_of(operand.shape) == 0) return 0;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < operand.shape.size(); ++i) last += (operand.shape[i] - 1) * operand.strides[i];
  if (operand.type == ACL_INT4) return (last + 2) / 2;
  return (last + 1) * static_cast<std::int64_t>(size_of(operand.type));
}

const unsigned char* first_byte(const Operand& operand) {
  if (operand.type == ACL_INT4) return operand.base + operand.offset / 2;
  return operand.base + operand.offset * static_cast<std::int64_t>(size_of(operand.type));
}

bool same_view(const Operand& a, const Operand& b) {
  if (first_byte(a) != first_byte(b) || size_of(a.type) != size_of(b.type) || a.shape != b.shape) return false;
  for (std::size_t i = 0; i < a.shape.size(); ++i)
    if (a.shape[i] > 1 && a.strides[i] != b.strides[i]) return false;
  return true;
}

/// The pieces of memory that an operand has, in order.
std::vector<std::pair<const unsigned char*, const unsigned char*>> pieces(const Operand& operand) {
  std::vector<std::pair<const unsigned char*, const unsigned char*>> all;
  const auto size = static_cast<std::int64_t>(size_of(operand.type));
  rows(operand.shape, operand.strides, [&](std::int64_t place, std::int64_t length, std::int64_t stride) {
    const unsigned char* from = first_byte(operand) + place * size;
    if (stride == 1 || length == 1) {
      all.emplace_back(from, from + length * size);
    } else {
      for (std::int64_t i = 0; i < length; ++i)
        all.emplace_back(from + i * stride * size, from + (i * stride + 1) * size);
    }
  });
  std::sort(all.begin(), all.end());
  return all;
}

bool overlap(const Operand& a, const Operand& b) {
  const std::int64_t bytes_a = extent(a), bytes_b = extent(b);
  if (bytes_a == 0 || bytes_b == 0) return false;
  const unsigned char *from_a = first_byte(a), *from_b = first_byte(b);
  if (from_a + bytes_a <= from_b || from_b + bytes_b <= from_a) return false;
  if (size_of(a.type) == 0 || size_of(b.type) == 0) return true;
  if (count_of(a.shape) + count_of(b.shape) > 10'000'000) return false;  // too many pieces to look at each
  const auto p = pieces(a), q = pieces(b);
  for (auto i = p.begin(), j = q.begin(); i != p.end() && j != q.end();) {
    if (i->second <= j->first) {
      ++i;
    } else if (j->second <= i->first) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

}  // namespace

Tensor Operator::add(const aclTensor* tensor, const std::string& name, const Types& types, bool reads, bool writes,
                     std::size_t place) {
  const std::string what = name + " of aclnn" + plan_.name;
  if (tensor == nullptr) refuse(name + " is null", ACLNN_ERR_PARAM_NULLPTR);
  if (!engine().lives(Kind::tensor, tensor)) {
    engine().fault(what + " is no tensor, or one that was destroyed");
    refuse(name + " is no tensor");
  }
  demand(tensor->shape.size() <= 8, name + " has more than 8 dimensions");
  demand(std::find(types.begin(), types.end(), tensor->type) != types.end(),
         name + " has the type " + name_of(tensor->type) + ", which is not supported");
  demand(tensor->format == ACL_FORMAT_ND || tensor->format == ACL_FORMAT_NCHW || tensor->format == ACL_FORMAT_NHWC ||
             tensor->format == ACL_FORMAT_NCL || tensor->format == ACL_FORMAT_NC ||
             tensor->format == ACL_FORMAT_NCDHW || tensor->format == ACL_FORMAT_NDHWC ||
             tensor->format == ACL_FORMAT_HWCN,
         name + " has a private format");
  Operand operand;
  operand.name = name;
  operand.type = tensor->type;
  operand.shape = tensor->shape;
  operand.strides = tensor->strides;
  operand.offset = tensor->offset;
  operand.base = tensor->data;
  operand.reads = reads;
  operand.writes = writes;
  operand.tensor = tensor;
  operand.list = arguments_;
  operand.place = place;
  for (std::size_t i = 0; i < operand.shape.size(); ++i) {
    demand(operand.shape[i] >= 0, name + " has a negative dimension");
    demand(operand.strides[i] >= 0, name + " has a negative stride");
    if (writes && operand.shape[i] > 1 && operand.strides[i] == 0) {
      engine().fault(what + " is written through a stride of 0");
      refuse(name + " is written through a stride of 0");
    }
  }
  if (count_of(operand.shape) > 0) {
    if (operand.base == nullptr) refuse(name + " has no memory", ACLNN_ERR_PARAM_NULLPTR);
    demand(operand.offset >= 0, name + " has a negative offset");
    if (reinterpret_cast<std::uintptr_t>(first_byte(operand)) % 32 != 0) {
      engine().fault(what + " is not aligned to 32 bytes");
      refuse(name + " is not aligned to 32 bytes");
    }
    std::int64_t stored = 1;
    for (const std::int64_t size : tensor->storage) stored *= size;
    const auto size = static_cast<std::int64_t>(std::max<std::size_t>(size_of(operand.type), 1));
    if (operand.type != ACL_INT4 && operand.offset * size + extent(operand) > stored * size) {
      engine().fault(what + " leaves its storage of " + std::to_string(stored) + " elements");
      refuse(name + " leaves its storage");
    }
  }
  Tensor view;
  view.name = name;
  view.type = operand.type;
  view.shape = operand.shape;
  view.strides = operand.strides;
  view.operand = plan_.operands.size();
  plan_.operands.push_back(std::move(operand));
  return view;
}

std::vector<Tensor> Operator::add(const aclTensorList* list, const char* name, const Types& types, bool reads,
                                  bool writes) {
  if (list == nullptr) refuse(std::string(name) + " is null", ACLNN_ERR_PARAM_NULLPTR);
  if (!engine().lives(Kind::tensor_list, list)) {
    engine().fault(std::string(name) + " of aclnn" + plan_.name + " is no list, or one that was destroyed");
    refuse(std::string(name) + " is no list of tensors");
  }
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < list->tensors.size(); ++i)
    all.push_back(add(list->tensors[i], name + ("[" + std::to_string(i) + "]"), types, reads, writes, i));
  ++arguments_;
  return all;
}

Tensor Operator::input(const aclTensor* tensor, const char* name, const Types& types) {
  Tensor view = add(tensor, name, types, true, false, 0);
  ++arguments_;
  return view;
}

Tensor Operator::optional_input(const aclTensor* tensor, const char* name, const Types& types) {
  if (tensor != nullptr) return input(tensor, name, types);
  ++arguments_;
  return {};
}

Tensor Operator::output(const aclTensor* tensor, const char* name, const Types& types) {
  Tensor view = add(tensor, name, types, false, true, 0);
  ++arguments_;
  return view;
}

Tensor Operator::packed_output(const aclTensor* tensor, const char* name, const Types& types) {
  Tensor view = output(tensor, name, types);
  if (engine().setting("gaps") == 0) {
    need_contiguous(view);
  } else {
    view.strides = strides_of(view.shape);
    plan_.operands.back().strides = view.strides;
  }
  return view;
}

Tensor Operator::in_place(const aclTensor* tensor, const char* name, const Types& types) {
  Tensor view = add(tensor, name, types, true, true, 0);
  ++arguments_;
  return view;
}

std::vector<Tensor> Operator::inputs(const aclTensorList* list, const char* name, const Types& types) {
  return add(list, name, types, true, false);
}
std::vector<Tensor> Operator::outputs(const aclTensorList* list, const char* name, const Types& types) {
  return add(list, name, types, false, true);
}
std::vector<Tensor> Operator::in_place(const aclTensorList* list, const char* name, const Types& types) {
  return add(list, name, types, true, true);
}

Number Operator::number(const aclScalar* scalar, const char* name) {
  if (scalar == nullptr) refuse(std::string(name) + " is null", ACLNN_ERR_PARAM_NULLPTR);
  if (!engine().lives(Kind::scalar, scalar)) {
    engine().fault(std::string(name) + " of aclnn" + plan_.name + " is no scalar, or one that was destroyed");
    refuse(std::string(name) + " is no scalar");
  }
  demand(size_of(scalar->type) != 0 && size_of(scalar->type) <= 8, std::string(name) + " has an unsupported type");
  return {scalar->type, load(scalar->value, scalar->type), load_integer(scalar->value, scalar->type)};
}

Dims Operator::numbers(const aclIntArray* array, const char* name) {
  if (array == nullptr) refuse(std::string(name) + " is null", ACLNN_ERR_PARAM_NULLPTR);
  if (!engine().lives(Kind::int_array, array)) {
    engine().fault(std::string(name) + " of aclnn" + plan_.name + " is no array, or one that was destroyed");
    refuse(std::string(name) + " is no array");
  }
  return array->values;
}

void Operator::present(const void* pointer, const char* name) {
  if (pointer == nullptr) refuse(std::string(name) + " is null", ACLNN_ERR_PARAM_NULLPTR);
}

void Operator::check_overlaps() const {
  for (const Operand& to : plan_.operands) {
    if (!to.writes) continue;
    for (const Operand& other : plan_.operands) {
      if (&other == &to || (other.writes && &other < &to) || !overlap(to, other)) continue;
      if (!apart_ && same_view(to, other)) continue;
      const std::string text = to.name + " and " + other.name + " share memory";
      engine().fault("aclnn" + plan_.name + ": " + text);
      refuse(text);
    }
  }
}

Plan Operator::finish() {
  check_overlaps();
  bool any = false, written = false;
  plan_.bytes = 0;
  for (const Operand& operand : plan_.operands) {
    const double elements = static_cast<double>(count_of(operand.shape));
    plan_.bytes += operand.type == ACL_INT4 ? elements / 2 : elements * static_cast<double>(size_of(operand.type));
    if (!operand.writes) continue;
    any = true;
    written = written || count_of(operand.shape) > 0;
  }
  if (any && !written) plan_.kernel = nullptr;
  // Of the others every third asks for memory, so that callers which forget it are found out.
  std::uint64_t sum = 0;
  for (const char c : plan_.name) sum = sum * 31 + static_cast<unsigned char>(c);
  const std::uint64_t unasked = sum % 3 == 0 ? 512 * (sum % 7 + 1) : 0;
  plan_.workspace = plan_.kernel == nullptr ? 0 : workspace_ >= 0 ? static_cast<std::uint64_t>(workspace_) : unasked;
  return std::move(plan_);
}

int prepare(const char* name, std::uint64_t* workspace_size, aclOpExecutor** executor,
            const std::function<void(Operator&)>& describe) {
  Engine& core = engine();
  const std::string function = std::string("aclnn") + name + "GetWorkspaceSize: ";
  if (const int code = core.ready(name); code != 0) return code;
  if (core.setting("missing_kernels") != 0)
    return core.failure(ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND, function + "the kernels' package is not installed");
  if (const std::string mixed = core.mixed(); !mixed.empty()) {
    core.fault(function + mixed);
    return core.failure(ACLNN_ERR_INNER, function + mixed);
  }
  if (workspace_size == nullptr || executor == nullptr)
    return core.failure(ACLNN_ERR_PARAM_NULLPTR, function + "workspaceSize or executor is null");
  try {
    Operator op(name);
    describe(op);
    auto made = std::make_unique<aclOpExecutor>();
    made->plan = op.finish();
    *workspace_size = made->plan.workspace;
    core.made(Kind::executor, made.get());
    *executor = made.release();
    return 0;
  } catch (const Refusal& refusal) {
    return core.failure(refusal.code, function + refusal.text);
  } catch (const std::exception& error) {
    return core.failure(ACLNN_ERR_INNER, function + error.what());
  }
}

// Phase 2

int execute(const char* name, void* workspace, std::uint64_t workspace_size, aclOpExecutor* executor,
            aclrtStream stream) {
  Engine& core = engine();
  const std::string function = std::string("aclnn") + name;
  if (const int code = core.ready(name); code != 0) {
    // The executor ends with the call all the same.
    if (executor != nullptr && core.lives(Kind::executor, executor) && !executor->repeatable &&
        core.gone(Kind::executor, executor))
      delete executor;
    return code;
  }
  if (executor == nullptr) return core.failure(ACLNN_ERR_PARAM_NULLPTR, function + ": executor is null");
  if (!core.lives(Kind::executor, executor)) {
    core.fault(function + ": the executor was used before or destroyed");
    return core.failure(ACLNN_ERR_PARAM_INVALID, function + ": no such executor");
  }
  if (executor->plan.name != name) {
    core.fault(function + ": the executor is of aclnn" + executor->plan.name);
    return core.failure(ACLNN_ERR_PARAM_INVALID, function + ": the executor is of aclnn" + executor->plan.name);
  }
  for (const Operand& operand : executor->plan.operands) {
    if (core.lives(Kind::tensor, operand.tensor)) continue;
    core.fault(function + ": " + operand.name + " was destroyed between the phases");
    return core.failure(ACLNN_ERR_PARAM_INVALID, function + ": a tensor was destroyed");
  }
  if (workspace_size < executor->plan.workspace || (workspace == nullptr && executor->plan.workspace > 0)) {
    core.fault(function + ": a workspace of " + std::to_string(workspace == nullptr ? 0 : workspace_size) +
               " bytes where " + std::to_string(executor->plan.workspace) + " are needed");
    return core.failure(ACLNN_ERR_PARAM_INVALID, function + ": the workspace is too small");
  }
  std::shared_ptr<const Plan> plan;
  if (executor->repeatable) {
    plan = std::make_shared<const Plan>(executor->plan);
    executor->used = true;
  } else {
    plan = std::make_shared<const Plan>(std::move(executor->plan));
    core.gone(Kind::executor, executor);
    delete executor;
  }
  if (plan->kernel == nullptr) return 0;

  Task task;
  task.name = function;
  task.launch = true;
  task.flops = plan->flops;
  task.casts = plan->casts;
  task.bytes = plan->bytes;
  for (const Operand& operand : plan->operands) {
    const auto bytes = static_cast<std::size_t>(extent(operand));
    if (bytes == 0) continue;
    if (operand.reads) task.touches.push_back({first_byte(operand), bytes, false, operand.name});
    if (operand.writes) task.touches.push_back({first_byte(operand), bytes, true, operand.name});
  }
  const std::size_t scratch = plan->workspace;
  if (scratch > 0) {
    if (reinterpret_cast<std::uintptr_t>(workspace) % 32 != 0)
      core.fault(function + ": the workspace is not aligned to 32 bytes");
    for (const Touch& touch : task.touches) {
      const auto* from = static_cast<const unsigned char*>(touch.address);
      const auto* to = static_cast<const unsigned char*>(workspace);
      if (from < to + scratch && to < from + touch.bytes)
        core.fault(function + ": the workspace shares memory with " + touch.what);
    }
    task.touches.push_back({workspace, scratch, true, "the workspace"});
  }
  // The stream's thread is the last to have the plan.
  task.run = [plan = std::move(plan), workspace, scratch] {
    std::vector<unsigned char*> first;
    for (const Operand& operand : plan->operands) {
      const auto bytes = static_cast<std::size_t>(extent(operand));
      first.push_back(bytes == 0 ? nullptr : engine().reach(first_byte(operand), bytes));
      if (bytes != 0 && first.back() == nullptr) return static_cast<int>(ACL_ERROR_RT_AICORE_EXCEPTION);
    }
    if (scratch > 0) {
      // What a kernel leaves in its workspace is nobody's business.
      if (unsigned char* memory = engine().reach(workspace, scratch); memory != nullptr)
        std::memset(memory, 0xA5, scratch);
    }
    try {
      plan->kernel(Launch(std::move(first)));
      return 0;
    } catch (const Launch::Trap& trap) {
      engine().failure(trap.code, trap.text);
      return trap.code;
    } catch (const Refusal& refusal) {  // of a view that the kernel made
      engine().fault("aclnn" + plan->name + ": " + refusal.text);
      return static_cast<int>(ACL_ERROR_RT_AICORE_EXCEPTION);
    }
  };
  return core.submit(stream, std::move(task));
}

void in_any_order(std::vector<double>& sums, bool fixed) {
  static std::atomic<std::uint64_t> runs{0};
  if (fixed) return;
  std::uint64_t state = ++runs * 0x9E3779B97F4A7C15u;
  for (double& sum : sums) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    sum *= 1 + (static_cast<double>(state >> 62) - 1.5) * 0x1p-24;
  }
}

void same_shape(const Tensor& a, const Tensor& b) { need_shape(b, a.shape); }
void same_type(const Tensor& a, const Tensor& b) {
  demand(a.type == b.type, a.name + " has the type " + name_of(a.type) + ", " + b.name + " " + name_of(b.type));
}
void need_shape(const Tensor& tensor, const Dims& shape) {
  demand(tensor.shape == shape, tensor.name + " has the shape " + text_of(tensor.shape) + " and not " + text_of(shape));
}
void need_contiguous(const Tensor& tensor) { demand(tensor.contiguous(), tensor.name + " is not contiguous"); }

}  // namespace stand_in
