/// Reading and writing where indices point to.
#include <algorithm>
#include <cstring>
#include <optional>

#include "elementwise.hpp"

using namespace stand_in;

namespace {

/// An index that points outside stops the device, as documented for embeddings.
std::int64_t checked(std::int64_t index, std::int64_t size, bool from_the_end = false) {
  const std::int64_t place = from_the_end && index < 0 ? index + size : index;
  if (place < 0 || place >= size)
    throw Launch::Trap{ACL_ERROR_RT_AICORE_EXCEPTION,
                       "index " + std::to_string(index) + " where there are " + std::to_string(size)};
  return place;
}

/// The distance from the first element of the one with this number in row-major order.
std::int64_t place_of(std::int64_t number, const Dims& shape, const Dims& strides) {
  std::int64_t place = 0;
  for (std::size_t i = shape.size(); i-- > 0;) {
    place += number % shape[i] * strides[i];
    number /= shape[i];
  }
  return place;
}

/// Adds up in double (or int64) what goes to the same element, and writes the sums at the end: rounded once.
class Sums {
 public:
  explicit Sums(const Elements& from) : whole_(is_integral(from.type)) {
    if (whole_) {
      integers_ = from.read_integers();
    } else {
      reals_ = from.read();
    }
  }

  enum class How { replace = 0, add = 1, multiply = 2 };

  void put(std::int64_t number, double real, std::int64_t integer, How how) {
    const auto i = static_cast<std::size_t>(number);
    if (whole_) {
      apply(integers_[i], integer, how);
    } else {
      apply(reals_[i], real, how);
    }
  }

  void write(const Elements& to) {
    if (whole_) {
      write_wrapped(to, std::move(integers_));
    } else {
      to.write(reals_);
    }
  }

 private:
  template <class T>
  static void apply(T& element, T value, How how) {
    element = how == How::replace ? value : how == How::add ? element + value : element * value;
  }

  bool whole_;
  std::vector<double> reals_;
  std::vector<std::int64_t> integers_;
};

/// Values of a tensor, or one scalar for all.
class Values {
 public:
  Values(const Launch& launch, const Tensor& tensor) : whole_(is_integral(tensor.type)) {
    if (whole_) {
      integers_ = launch(tensor).read_integers();
    } else {
      reals_ = launch(tensor).read();
    }
  }
  Values(const Number& number, std::size_t count)
      : reals_(count, number.value), integers_(count, number.integer), whole_(false), both_(true) {}

  double real(std::size_t i) const { return whole_ ? static_cast<double>(integers_[i]) : reals_[i]; }
  std::int64_t integer(std::size_t i) const {
    return whole_ || both_ ? integers_[i] : to_integer<std::int64_t>(reals_[i]);
  }

 private:
  std::vector<double> reals_;
  std::vector<std::int64_t> integers_;
  bool whole_;
  bool both_ = false;
};

/// out[.., i.., ..] = from[.., index[i..], ..]
void gather_kernel(Operator& op, const Tensor& from, std::size_t dim, const Tensor& index, const Tensor& out) {
  Dims shape(from.shape.begin(), from.shape.begin() + static_cast<std::ptrdiff_t>(dim));
  shape.insert(shape.end(), index.shape.begin(), index.shape.end());
  shape.insert(shape.end(), from.shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1, from.shape.end());
  same_type(from, out);
  need_shape(out, shape);
  op.kernel([=](const Launch& launch) {
    const std::vector<std::int64_t> indices = launch(index).read_integers();
    const std::vector<unsigned char> bytes = read_bytes(launch(from));
    std::vector<unsigned char> picked;
    const auto part = [&](std::size_t first, std::size_t last) {
      return count_of(Dims(from.shape.begin() + static_cast<std::ptrdiff_t>(first),
                           from.shape.begin() + static_cast<std::ptrdiff_t>(last)));
    };
    const std::int64_t outer = part(0, dim), size = from.shape[dim];
    const std::int64_t inner = part(dim + 1, from.shape.size()) * static_cast<std::int64_t>(size_of(from.type));
    for (std::int64_t i = 0; i < outer; ++i) {
      for (const std::int64_t j : indices) {
        const auto row = bytes.begin() + (i * size + checked(j, size)) * inner;
        picked.insert(picked.end(), row, row + inner);
      }
    }
    write_bytes(launch(out), picked);
  });
}

/// What torch.gather and torch.scatter ask of the index: no larger than the others but along `dim`.
void need_within(const Tensor& index, const Tensor& other, std::optional<std::size_t> but) {
  demand(index.rank() == other.rank(), index.name + " and " + other.name + " do not have as many dimensions");
  for (std::size_t i = 0; i < index.shape.size(); ++i)
    demand(but == i || index.shape[i] <= other.shape[i], index.name + " is larger than " + other.name);
}

/// out = self with src (or the number) at the places that index names along dim.
void scatter_kernel(Operator& op, const Tensor& self, std::size_t dim, const Tensor& index, const Tensor* src,
                    const Number& number, Sums::How how, const Tensor& out) {
  need_within(index, self, dim);
  const bool has_src = src != nullptr;
  Tensor part = index;
  if (has_src) {
    same_type(self, *src);
    need_within(index, *src, std::nullopt);
    part = *src;
    part.shape = index.shape;
  }
  op.kernel([=](const Launch& launch) {
    const std::vector<std::int64_t> indices = launch(index).read_integers();
    const Values values = has_src ? Values(launch, part) : Values(number, indices.size());
    Sums sums(launch(self));
    Dims strides = strides_of(self.shape);
    const std::int64_t along = strides.empty() ? 0 : strides[dim];
    if (!strides.empty()) strides[dim] = 0;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::int64_t size = self.shape.empty() ? 1 : self.shape[dim];
      const std::int64_t place =
          place_of(static_cast<std::int64_t>(i), index.shape, strides) + checked(indices[i], size) * along;
      sums.put(place, values.real(i), values.integer(i), how);
    }
    sums.write(launch(out));
  });
}

Sums::How how_of(std::int64_t reduce) {
  demand(reduce >= 0 && reduce <= 2, "reduce is not 0, 1 or 2");
  return static_cast<Sums::How>(reduce);
}

int scatter(const char* name, const aclTensor* self, std::int64_t dim, const aclTensor* index, const aclTensor* src,
            const aclScalar* value, bool has_src, std::int64_t reduce, const aclTensor* out, std::uint64_t* workspace,
            aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const bool in_place = self == out;
    const Tensor from = in_place ? op.in_place(self, "selfRef", kNumbers) : op.input(self, "self", kNumbers);
    const Tensor places = op.input(index, "index", kIndices);
    Tensor source;
    Number number;
    if (has_src) {
      source = op.input(src, "src", kNumbers);
    } else {
      number = op.number(value, "value");
    }
    const Tensor to = in_place ? from : op.output(out, "out", kNumbers);
    same_shape(from, to);
    same_type(from, to);
    scatter_kernel(op, from, from.dimension(dim), places, has_src ? &source : nullptr, number, how_of(reduce), to);
  });
}

/// out = self with `source` put to the rows (along dim) that index names.
void rows_kernel(Operator& op, const Tensor& self, std::size_t dim, const Tensor& index, const Tensor& source,
                 const Number& alpha, Sums::How how, const Tensor& out) {
  demand(index.rank() <= 1, "index has more than one dimension");
  same_type(self, source);
  same_shape(self, out);
  same_type(self, out);
  Dims expected = self.shape;
  if (!expected.empty()) expected[dim] = index.count();
  need_shape(source, expected);
  op.kernel([=](const Launch& launch) {
    const std::vector<std::int64_t> indices = launch(index).read_integers();
    const Values values(launch, source);
    Sums sums(launch(self));
    const Dims strides = strides_of(self.shape);
    for (std::int64_t i = 0; i < source.count(); ++i) {
      // Where the element would be in a tensor of self's strides, and then in another row.
      std::int64_t rest = i, place = 0;
      for (std::size_t d = self.shape.size(); d-- > 0;) {
        const std::int64_t at = rest % source.shape[d];
        place += (d == dim ? checked(indices[static_cast<std::size_t>(at)], self.shape[d]) : at) * strides[d];
        rest /= source.shape[d];
      }
      const auto k = static_cast<std::size_t>(i);
      const double factor = how == Sums::How::add ? as_float(alpha, self.type) : 1;
      const std::int64_t whole = how == Sums::How::add ? alpha.integer : 1;
      sums.put(place, factor * values.real(k), whole * values.integer(k), how);
    }
    sums.write(launch(out));
  });
}

int copy_rows(const char* name, const aclTensor* self, std::int64_t dim, const aclTensor* index,
              const aclTensor* source, const aclTensor* out, std::uint64_t* workspace, aclOpExecutor** executor) {
  return prepare(name, workspace, executor, [&](Operator& op) {
    const bool in_place = self == out;
    const Tensor from = in_place ? op.in_place(self, "selfRef", kNumbers) : op.input(self, "selfRef", kNumbers);
    const Tensor places = op.input(index, "index", kIndices), values = op.input(source, "source", kNumbers);
    const Tensor to = in_place ? from : op.output(out, "outRef", kNumbers);
    rows_kernel(op, from, from.dimension(dim), places, values, {}, Sums::How::replace, to);
  });
}

}  // namespace

extern "C" {

int aclnnEmbeddingGetWorkspaceSize(const aclTensor* weight, const aclTensor* indices, const aclTensor* out,
                                   uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("Embedding", workspaceSize, executor, [&](Operator& op) {
    const Tensor table = op.input(weight, "weight", kMovable), index = op.input(indices, "indices", kIndices);
    const Tensor to = op.output(out, "out", kMovable);
    demand(table.rank() == 2, "weight is not of two dimensions");
    gather_kernel(op, table, 0, index, to);
  });
}
STAND_IN_PHASE_TWO(Embedding)

int aclnnEmbeddingDenseBackwardGetWorkspaceSize(const aclTensor* grad, const aclTensor* indices, uint64_t numWeights,
                                                uint64_t paddingIdx, bool scaleGradByFreq, const aclTensor* out,
                                                uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("EmbeddingDenseBackward", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(grad, "grad", kFloats), index = op.input(indices, "indices", kIndices);
    const Tensor to = op.output(out, "out", kFloats);
    demand(from.rank() >= 1, "grad has no dimensions");
    const std::int64_t width = from.size(-1), rows = static_cast<std::int64_t>(numWeights);
    Dims shape = index.shape;
    shape.push_back(width);
    need_shape(from, shape);
    same_type(from, to);
    need_shape(to, {rows, width});
    const bool fixed = engine().fixed_order();
    op.kernel([=](const Launch& launch) {
      const std::vector<std::int64_t> ids = launch(index).read_integers();
      const std::vector<double> values = launch(from).read();
      std::vector<double> sums(static_cast<std::size_t>(to.count()), 0);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::int64_t row = checked(ids[i], rows);
        if (static_cast<std::uint64_t>(row) == paddingIdx) continue;
        const auto often = static_cast<double>(std::count(ids.begin(), ids.end(), ids[i]));
        for (std::int64_t j = 0; j < width; ++j)
          sums[static_cast<std::size_t>(row * width + j)] +=
              values[i * static_cast<std::size_t>(width) + static_cast<std::size_t>(j)] / (scaleGradByFreq ? often : 1);
      }
      in_any_order(sums, fixed);
      launch(to).write(sums);
    });
  });
}
STAND_IN_PHASE_TWO(EmbeddingDenseBackward)

int aclnnIndexSelectGetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out,
                                     uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("IndexSelect", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kMovable);
    Tensor places = op.input(index, "index", kIndices);
    const Tensor to = op.output(out, "out", kMovable);
    demand(from.rank() >= 1, "self has no dimensions");
    demand(places.rank() <= 1, "index has more than one dimension");
    if (places.rank() == 0) {
      places.shape = {1};
      places.strides = {1};
    }
    gather_kernel(op, from, from.dimension(dim), places, to);
  });
}
STAND_IN_PHASE_TWO(IndexSelect)

int aclnnGatherV2GetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index, aclTensor* out,
                                  uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("GatherV2", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kMovable), places = op.input(index, "index", kIndices);
    const Tensor to = op.output(out, "out", kMovable);
    demand(from.rank() >= 1, "self has no dimensions");
    gather_kernel(op, from, from.dimension(dim), places, to);
  });
}
STAND_IN_PHASE_TWO(GatherV2)

int aclnnGatherGetWorkspaceSize(const aclTensor* self, const int64_t dim, const aclTensor* index, aclTensor* out,
                                uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("Gather", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kMovable), places = op.input(index, "index", kIndices);
    const Tensor to = op.output(out, "out", kMovable);
    demand(from.rank() >= 1, "self has no dimensions");
    const std::size_t along = from.dimension(dim);
    need_within(places, from, along);
    same_type(from, to);
    need_shape(to, places.shape);
    op.kernel([=](const Launch& launch) {
      const std::vector<std::int64_t> indices = launch(places).read_integers();
      const std::vector<unsigned char> bytes = read_bytes(launch(from));
      const std::size_t size = size_of(from.type);
      std::vector<unsigned char> picked(indices.size() * size);
      Dims strides = strides_of(from.shape);
      const std::int64_t step = strides[along];
      strides[along] = 0;
      for (std::size_t i = 0; i < indices.size(); ++i) {
        const std::int64_t place = place_of(static_cast<std::int64_t>(i), places.shape, strides) +
                                   checked(indices[i], from.shape[along]) * step;
        std::memcpy(picked.data() + i * size, bytes.data() + static_cast<std::size_t>(place) * size, size);
      }
      write_bytes(launch(to), picked);
    });
  });
}
STAND_IN_PHASE_TWO(Gather)

int aclnnIndexAddGetWorkspaceSize(const aclTensor* self, const int64_t dim, const aclTensor* index,
                                  const aclTensor* source, const aclScalar* alpha, aclTensor* out,
                                  uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("IndexAdd", workspaceSize, executor, [&](Operator& op) {
    const Tensor from = op.input(self, "self", kNumbers), places = op.input(index, "index", kIndices);
    const Tensor values = op.input(source, "source", kNumbers);
    const Number factor = op.number(alpha, "alpha");
    demand(is_floating(from.type) || !is_floating(factor.type), "alpha does not convert to the type of self");
    const Tensor to = op.output(out, "out", kNumbers);
    rows_kernel(op, from, from.dimension(dim), places, values, factor, Sums::How::add, to);
  });
}
STAND_IN_PHASE_TWO(IndexAdd)

int aclnnIndexCopyGetWorkspaceSize(aclTensor* selfRef, int64_t dim, const aclTensor* index, const aclTensor* source,
                                   aclTensor* outRef, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return copy_rows("IndexCopy", selfRef, dim, index, source, outRef, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(IndexCopy)

int aclnnInplaceIndexCopyGetWorkspaceSize(aclTensor* selfRef, int64_t dim, const aclTensor* index,
                                          const aclTensor* source, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return copy_rows("InplaceIndexCopy", selfRef, dim, index, source, selfRef, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceIndexCopy)

int aclnnScatterAddGetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index, const aclTensor* src,
                                    aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return scatter("ScatterAdd", self, dim, index, src, nullptr, true, 1, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(ScatterAdd)

int aclnnScatterGetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index, const aclTensor* src,
                                 int64_t reduce, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return scatter("Scatter", self, dim, index, src, nullptr, true, reduce, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(Scatter)

int aclnnInplaceScatterGetWorkspaceSize(aclTensor* selfRef, int64_t dim, const aclTensor* index, const aclTensor* src,
                                        int64_t reduce, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return scatter("InplaceScatter", selfRef, dim, index, src, nullptr, true, reduce, selfRef, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(InplaceScatter)

int aclnnScatterValueGetWorkspaceSize(const aclTensor* self, int64_t dim, const aclTensor* index,
                                      const aclScalar* value, int64_t reduce, aclTensor* out, uint64_t* workspaceSize,
                                      aclOpExecutor** executor) {
  return scatter("ScatterValue", self, dim, index, nullptr, value, false, reduce, out, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(ScatterValue)

int aclnnInplaceScatterValueGetWorkspaceSize(aclTensor* selfRef, int64_t dim, const aclTensor* index,
                                             const aclScalar* value, int64_t reduce, uint64_t* workspaceSize,
                                             aclOpExecutor** executor) {
  return scatter("InplaceScatterValue", selfRef, dim, index, nullptr, value, false, reduce, selfRef, workspaceSize,
                 executor);
}
STAND_IN_PHASE_TWO(InplaceScatterValue)

int aclnnInplaceScatterUpdateGetWorkspaceSize(aclTensor* data, const aclTensor* indices, const aclTensor* updates,
                                              int64_t axis, uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("InplaceScatterUpdate", workspaceSize, executor, [&](Operator& op) {
    const Tensor to = op.in_place(data, "data", kMovable), offsets = op.input(indices, "indices", kIndices);
    const Tensor from = op.input(updates, "updates", kMovable);
    same_type(to, from);
    demand(offsets.rank() == 1, "indices is not of one dimension");
    demand(to.rank() >= 2 && from.rank() == to.rank(), "data and updates do not have as many dimensions");
    const std::size_t along = to.dimension(axis);
    demand(along != 0, "axis is that of the batch");
    demand(offsets.count() == from.shape[0], "indices is not as long as updates");
    for (std::size_t i = 0; i < to.shape.size(); ++i)
      demand(i == 0 || i == along ? from.shape[i] <= to.shape[i] : from.shape[i] == to.shape[i],
             "updates does not fit into data");
    op.kernel([=](const Launch& launch) {
      const std::vector<std::int64_t> starts = launch(offsets).read_integers();
      for (std::size_t i = 0; i < starts.size(); ++i) {
        const auto item = static_cast<std::int64_t>(i);
        const std::int64_t length = from.shape[along];
        checked(starts[i], to.shape[along] - length + 1);
        convert(launch(from.narrowed(0, item, 1)),
                launch(to.narrowed(0, item, 1).narrowed(static_cast<std::int64_t>(along), starts[i], length)));
      }
    });
  });
}
STAND_IN_PHASE_TWO(InplaceScatterUpdate)

int aclnnScatterNdUpdateGetWorkspaceSize(aclTensor* varRef, const aclTensor* indices, const aclTensor* updates,
                                         uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("ScatterNdUpdate", workspaceSize, executor, [&](Operator& op) {
    const Tensor to = op.in_place(varRef, "varRef", kMovable), places = op.input(indices, "indices", kIndices);
    const Tensor from = op.input(updates, "updates", kMovable);
    same_type(to, from);
    demand(places.rank() >= 1, "indices has no dimensions");
    const std::int64_t depth = places.size(-1);
    demand(depth <= to.rank(), "indices has more coordinates than varRef has dimensions");
    Dims shape(places.shape.begin(), places.shape.end() - 1);
    const std::int64_t points = count_of(shape);
    shape.insert(shape.end(), to.shape.begin() + depth, to.shape.end());
    need_shape(from, shape);
    op.kernel([=](const Launch& launch) {
      const std::vector<std::int64_t> coordinates = launch(places).read_integers();
      const std::vector<unsigned char> bytes = read_bytes(launch(from));
      const std::size_t row = points > 0 ? bytes.size() / static_cast<std::size_t>(points) : 0;
      for (std::int64_t i = 0; i < points; ++i) {
        Tensor part = to;
        for (std::int64_t d = 0; d < depth; ++d)
          part = part.narrowed(
              d, checked(coordinates[static_cast<std::size_t>(i * depth + d)], to.shape[static_cast<std::size_t>(d)]),
              1);
        const auto first = bytes.begin() + i * static_cast<std::int64_t>(row);
        write_bytes(launch(part), std::vector<unsigned char>(first, first + static_cast<std::int64_t>(row)));
      }
    });
  });
}
STAND_IN_PHASE_TWO(ScatterNdUpdate)

int aclnnIndexPutImplGetWorkspaceSize(aclTensor* selfRef, const aclTensorList* indices, const aclTensor* values,
                                      const bool accumulate, const bool unsafe, uint64_t* workspaceSize,
                                      aclOpExecutor** executor) {
  (void)unsafe;  // an index that points outside stops the device either way
  return prepare("IndexPutImpl", workspaceSize, executor, [&](Operator& op) {
    const Tensor to = op.in_place(selfRef, "selfRef", kNumbers);
    // Masks are documented as well; how many elements they choose would be known on the device alone.
    const std::vector<Tensor> places = op.inputs(indices, "indices", kIndices);
    const Tensor from = op.input(values, "values", kNumbers);
    same_type(to, from);
    demand(!places.empty(), "indices is an empty list");
    demand(places.size() <= to.shape.size(), "indices has more tensors than selfRef has dimensions");
    Dims points;
    for (const Tensor& place : places) points = broadcast_shape(points, place.shape);
    Dims shape = points;
    shape.insert(shape.end(), to.shape.begin() + static_cast<std::ptrdiff_t>(places.size()), to.shape.end());
    const Tensor spread = from.broadcast(shape);
    op.kernel([=](const Launch& launch) {
      const Values read(launch, spread);
      Sums sums(launch(to));
      const Dims strides = strides_of(to.shape);
      const std::int64_t inner = count_of(shape) / std::max<std::int64_t>(count_of(points), 1);
      std::vector<std::int64_t> firsts(static_cast<std::size_t>(count_of(points)), 0);
      for (std::size_t d = 0; d < places.size(); ++d) {
        const std::vector<std::int64_t> coordinates = launch(places[d].broadcast(points)).read_integers();
        for (std::size_t i = 0; i < firsts.size(); ++i)
          firsts[i] += checked(coordinates[i], to.shape[d], true) * strides[d];
      }
      for (std::size_t i = 0; i < firsts.size(); ++i) {
        for (std::int64_t j = 0; j < inner; ++j) {
          const std::size_t at = i * static_cast<std::size_t>(inner) + static_cast<std::size_t>(j);
          sums.put(firsts[i] + j, read.real(at), read.integer(at), accumulate ? Sums::How::add : Sums::How::replace);
        }
      }
      sums.write(launch(to));
    });
  });
}
STAND_IN_PHASE_TWO(IndexPutImpl)

int aclnnInplaceIndexFillTensorGetWorkspaceSize(aclTensor* selfRef, int64_t dim, const aclIntArray* index,
                                                const aclScalar* value, uint64_t* workspaceSize,
                                                aclOpExecutor** executor) {
  return prepare("InplaceIndexFillTensor", workspaceSize, executor, [&](Operator& op) {
    const Tensor to =
        op.in_place(selfRef, "selfRef", {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_INT32, ACL_INT64, ACL_BOOL});
    const Dims places = op.numbers(index, "index");
    const Number number = op.number(value, "value");
    demand(to.rank() >= 1, "selfRef has no dimensions");
    const std::int64_t size = to.size(dim);
    std::vector<Tensor> parts;
    for (const std::int64_t place : places) {
      demand(place >= -size && place < size, "an index outside of selfRef");
      parts.push_back(to.narrowed(dim, place < 0 ? place + size : place, 1));
    }
    op.kernel([=](const Launch& launch) {
      for (const Tensor& part : parts) {
        const auto count = static_cast<std::size_t>(part.count());
        if (is_integral(part.type) && is_integral(number.type)) {
          write_wrapped(launch(part), std::vector<std::int64_t>(count, number.integer));
        } else {
          launch(part).write(std::vector<double>(count, number.value));
        }
      }
    });
  });
}
STAND_IN_PHASE_TWO(InplaceIndexFillTensor)

}  // extern "C"
