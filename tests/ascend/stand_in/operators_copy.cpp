/// Copies, conversions, fills, and what puts elements elsewhere.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "elementwise.hpp"

using namespace stand_in;

namespace {

/// Fills with the scalar, or with `constant` where the operator has none.
int fill(const char* name, const aclTensor* self, const aclScalar* value, const Number* constant,
         std::uint64_t* workspace, aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const Tensor to = op.output(self, "selfRef", kMovable);
    const Number number = constant != nullptr ? *constant : op.number(value, "value");
    op.kernel([=](const Launch& launch) {
      const auto count = static_cast<std::size_t>(to.count());
      if (is_integral(to.type) && is_integral(number.type)) {
        write_wrapped(launch(to), std::vector<std::int64_t>(count, number.integer));
      } else {
        launch(to).write(std::vector<double>(count, number.value));
      }
    });
  });
}

/// The elements on one side of a diagonal stay, the others become zero.
int triangle(const char* name, bool upper, const aclTensor* self, std::int64_t diagonal, const aclTensor* out,
             std::uint64_t* workspace, aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const bool in_place = self == out;
    const Tensor from = in_place ? op.in_place(self, "selfRef", kNumbers) : op.input(self, "self", kNumbers);
    const Tensor to = in_place ? from : op.output(out, "out", kNumbers);
    demand(from.rank() >= 2, from.name + " has fewer than 2 dimensions");
    same_shape(from, to);
    same_type(from, to);
    op.kernel([=](const Launch& launch) {
      std::vector<unsigned char> bytes = read_bytes(launch(from));
      const std::size_t size = size_of(from.type);
      const std::int64_t rows = from.size(-2), columns = from.size(-1);
      for (std::int64_t i = 0; i < from.count(); ++i) {
        const std::int64_t row = i / columns % rows, column = i % columns;
        const bool stays = upper ? column - row >= diagonal : column - row <= diagonal;
        if (!stays) std::fill_n(bytes.begin() + i * static_cast<std::int64_t>(size), size, std::uint8_t{0});
      }
      write_bytes(launch(to), bytes);
    });
  });
}

void copy_kernel(Operator& op, const Tensor& from, const Tensor& to) {
  op.kernel([=](const Launch& launch) { convert(launch(from), launch(to)); });
}

}  // namespace

extern "C" {

int aclnnCastGetWorkspaceSize(const aclTensor* self, const aclDataType dtype, aclTensor* out, uint64_t* workspaceSize,
                              aclOpExecutor** executor) {
  return prepare("Cast", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kMovable), to = op.output(out, "out", kMovable);
    demand(to.type == dtype, "out does not have the type dtype");
    same_shape(from, to);
    copy_kernel(op, from, to);
  });
}
STAND_IN_PHASE_TWO(Cast)

int aclnnInplaceCopyGetWorkspaceSize(aclTensor* selfRef, const aclTensor* src, uint64_t* workspaceSize,
                                     aclOpExecutor** executor) {
  return prepare("InplaceCopy", workspaceSize, executor, [&](Operator& op) {
    const Tensor to = op.output(selfRef, "selfRef", kMovable), from = op.input(src, "src", kMovable);
    copy_kernel(op, from.broadcast(to.shape), to);
  });
}
int aclnnInplaceCopy(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, const aclrtStream stream) {
  return execute("InplaceCopy", workspace, workspaceSize, executor, stream);
}

int aclnnInplaceZeroGetWorkspaceSize(aclTensor* selfRef, uint64_t* workspaceSize, aclOpExecutor** executor) {
  const Number zero{ACL_INT64, 0, 0};
  return fill("InplaceZero", selfRef, nullptr, &zero, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceZero)

int aclnnInplaceOneGetWorkspaceSize(const aclTensor* selfRef, uint64_t* workspaceSize, aclOpExecutor** executor) {
  const Number one{ACL_INT64, 1, 1};
  return fill("InplaceOne", selfRef, nullptr, &one, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceOne)

int aclnnInplaceFillScalarGetWorkspaceSize(aclTensor* selfRef, const aclScalar* value, uint64_t* workspaceSize,
                                           aclOpExecutor** executor) {
  return fill("InplaceFillScalar", selfRef, value, nullptr, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceFillScalar)

int aclnnInplaceFillTensorGetWorkspaceSize(aclTensor* selfRef, const aclTensor* value, uint64_t* workspaceSize,
                                           aclOpExecutor** executor) {
  return prepare("InplaceFillTensor", workspaceSize, executor, [&](Operator& op) {
    const Tensor to = op.output(selfRef, "selfRef", kMovable), one = op.input(value, "value", kMovable);
    demand(one.rank() == 0 || (one.rank() == 1 && one.count() == 1), "value is not one element");
    copy_kernel(op, one.broadcast(to.shape), to);
  });
}
STAND_IN_PHASE_TWO(InplaceFillTensor)

int aclnnPermuteGetWorkspaceSize(const aclTensor* self, const aclIntArray* dims, aclTensor* out,
                                 uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("Permute", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kMovable), to = op.output(out, "out", kMovable);
    const Dims order = op.numbers(dims, "dims");
    demand(order.size() == from.shape.size(), "dims are not as many as the dimensions of self");
    Tensor view = from;
    std::vector<bool> taken(order.size(), false);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t dim = from.dimension(order[i]);
      demand(!taken[dim], "dims name a dimension twice");
      taken[dim] = true;
      view.shape[i] = from.shape[dim];
      view.strides[i] = from.strides[dim];
    }
    same_type(from, to);
    need_shape(to, view.shape);
    copy_kernel(op, view, to);
  });
}
STAND_IN_PHASE_TWO(Permute)

int aclnnCatGetWorkspaceSize(const aclTensorList* tensors, int64_t dim, aclTensor* out, uint64_t* workspaceSize,
                             aclOpExecutor** executor) {
  return prepare("Cat", workspaceSize, executor, [&](Operator& op) {
    std::vector<Tensor> parts = op.inputs(tensors, "tensors", kMovable);
    const Tensor to = op.output(out, "out", kMovable);
    demand(!parts.empty(), "tensors is an empty list");
    // As in PyTorch, an empty tensor of one dimension goes with any others.
    const auto nothing = [](const Tensor& part) { return part.rank() == 1 && part.count() == 0; };
    if (!std::all_of(parts.begin(), parts.end(), nothing))
      parts.erase(std::remove_if(parts.begin(), parts.end(), nothing), parts.end());
    const std::size_t along = parts[0].dimension(dim);
    aclDataType type = parts[0].type;
    Dims shape = parts[0].shape;
    shape[along] = 0;
    for (const Tensor& part : parts) {
      demand(part.rank() == parts[0].rank(), "the tensors do not all have as many dimensions");
      type = promote(type, part.type);
      const std::int64_t length = part.shape[along];
      Dims expected = shape;
      expected[along] = length;
      need_shape(part, expected);
      shape[along] += length;
    }
    need_shape(to, shape);
    demand_converts(type, to);
    op.kernel([=](const Launch& launch) {
      std::int64_t at = 0;
      for (const Tensor& part : parts) {
        const std::int64_t length = part.shape[along];
        convert(launch(part), launch(to.narrowed(static_cast<std::int64_t>(along), at, length)));
        at += length;
      }
    });
  });
}
STAND_IN_PHASE_TWO(Cat)

int aclnnSliceGetWorkspaceSize(const aclTensor* self, int64_t dim, int64_t start, int64_t end, int64_t step,
                               aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("Slice", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kMovable), to = op.output(out, "out", kMovable);
    demand(from.rank() > 0, "self has no dimensions");
    demand(step > 0, "step is not positive");
    same_type(from, to);
    const std::int64_t length = from.size(dim);
    const auto within = [&](std::int64_t place) {
      return std::clamp<std::int64_t>(place < 0 ? place + length : place, 0, length);
    };
    const std::int64_t first = within(start), last = std::max(within(end), first);
    Tensor view = from.narrowed(dim, first, last - first);
    const std::size_t along = from.dimension(dim);
    view.shape[along] = (last - first + step - 1) / step;
    view.strides[along] *= step;
    need_shape(to, view.shape);
    copy_kernel(op, view, to);
  });
}
STAND_IN_PHASE_TWO(Slice)

int aclnnSplitWithSizeGetWorkspaceSize(const aclTensor* self, const aclIntArray* splitSize, int64_t dim,
                                       aclTensorList* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("SplitWithSize", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kMovable);
    const Dims sizes = op.numbers(splitSize, "splitSize");
    const std::vector<Tensor> parts = op.outputs(out, "out", kMovable);
    demand(parts.size() == sizes.size(), "out has not as many tensors as splitSize has numbers");
    demand(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == from.size(dim),
           "the sizes do not add up to that of the dimension");
    std::vector<Tensor> views;
    std::int64_t at = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      views.push_back(from.narrowed(dim, at, sizes[i]));
      at += sizes[i];
      need_shape(parts[i], views[i].shape);
      same_type(from, parts[i]);
    }
    op.kernel([=](const Launch& launch) {
      for (std::size_t i = 0; i < parts.size(); ++i) convert(launch(views[i]), launch(parts[i]));
    });
  });
}
STAND_IN_PHASE_TWO(SplitWithSize)

int aclnnExpandGetWorkspaceSize(const aclTensor* self, const aclIntArray* size, aclTensor* out, uint64_t* workspaceSize,
                                aclOpExecutor** executor) {
  return prepare("Expand", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kMovable);
    Dims shape = op.numbers(size, "size");
    const Tensor to = op.output(out, "out", kMovable);
    demand(shape.size() >= from.shape.size(), "size has fewer dimensions than self");
    const std::size_t lead = shape.size() - from.shape.size();
    for (std::size_t i = 0; i < shape.size(); ++i) {
      demand(shape[i] >= 0 || (shape[i] == -1 && i >= lead), "size has a number that is no size");
      if (shape[i] == -1) shape[i] = from.shape[i - lead];
    }
    same_type(from, to);
    need_shape(to, shape);
    copy_kernel(op, from.broadcast(shape), to);
  });
}
STAND_IN_PHASE_TWO(Expand)

int aclnnRepeatGetWorkspaceSize(const aclTensor* self, const aclIntArray* repeats, aclTensor* out,
                                uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("Repeat", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kMovable);
    const Dims times = op.numbers(repeats, "repeats");
    const Tensor to = op.output(out, "out", kMovable);
    demand(times.size() >= from.shape.size(), "repeats has fewer numbers than self has dimensions");
    demand(times.size() <= 8, "repeats has more than 8 numbers");
    // Both sides as [times, size] for each dimension.
    Tensor source = from, target = to;
    source.shape.clear(), source.strides.clear(), target.shape.clear(), target.strides.clear();
    Dims shape;
    const std::size_t lead = times.size() - from.shape.size();
    for (std::size_t i = 0; i < times.size(); ++i) {
      demand(times[i] >= 0, "a negative number of repeats");
      const std::int64_t size = i < lead ? 1 : from.shape[i - lead];
      source.shape.insert(source.shape.end(), {times[i], size});
      source.strides.insert(source.strides.end(), {0, i < lead ? 0 : from.strides[i - lead]});
      shape.push_back(times[i] * size);
    }
    same_type(from, to);
    need_shape(to, shape);
    target.shape = source.shape;
    for (std::size_t i = 0; i < times.size(); ++i)
      target.strides.insert(target.strides.end(), {to.strides[i] * source.shape[2 * i + 1], to.strides[i]});
    copy_kernel(op, source, target);
  });
}
STAND_IN_PHASE_TWO(Repeat)

int aclnnTrilGetWorkspaceSize(const aclTensor* self, int64_t diagonal, aclTensor* out, uint64_t* workspaceSize,
                              aclOpExecutor** executor) {
  return triangle("Tril", false, self, diagonal, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Tril)

int aclnnInplaceTrilGetWorkspaceSize(const aclTensor* selfRef, int64_t diagonal, uint64_t* workspaceSize,
                                     aclOpExecutor** executor) {
  return triangle("InplaceTril", false, selfRef, diagonal, selfRef, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceTril)

int aclnnTriuGetWorkspaceSize(const aclTensor* self, int64_t diagonal, aclTensor* out, uint64_t* workspaceSize,
                              aclOpExecutor** executor) {
  return triangle("Triu", true, self, diagonal, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Triu)

int aclnnInplaceTriuGetWorkspaceSize(aclTensor* selfRef, int64_t diagonal, uint64_t* workspaceSize,
                                     aclOpExecutor** executor) {
  return triangle("InplaceTriu", true, selfRef, diagonal, selfRef, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceTriu)

int aclnnArangeGetWorkspaceSize(const aclScalar* start, const aclScalar* end, const aclScalar* step, aclTensor* out,
                                uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("Arange", workspaceSize, executor, [&](Operator& op) {
    const Number from = op.number(start, "start"), limit = op.number(end, "end"), by = op.number(step, "step");
    const Tensor to = op.output(out, "out", {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE, ACL_INT32, ACL_INT64});
    demand(by.value != 0, "step is 0");
    demand((limit.value - from.value) * by.value >= 0, "end is on the other side of start than step goes");
    need_shape(to, {static_cast<std::int64_t>(std::ceil((limit.value - from.value) / by.value))});
    op.kernel([=](const Launch& launch) {
      if (is_integral(to.type) && is_integral(from.type) && is_integral(by.type)) {
        std::vector<std::int64_t> values(static_cast<std::size_t>(to.count()));
        std::int64_t next = from.integer;
        for (std::int64_t& value : values) {
          value = next;
          next += by.integer;
        }
        launch(to).write_integers(values);
      } else {
        std::vector<double> values(static_cast<std::size_t>(to.count()));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = from.value + static_cast<double>(i) * by.value;
        launch(to).write(values);
      }
    });
  });
}
STAND_IN_PHASE_TWO(Arange)

}  // extern "C"
