#pragma once

#if defined(LORA_WITH_ONEDNN)

#  include <cstring>
#  include <list>
#  include <oneapi/dnnl/dnnl.hpp>
#  include <string>
#  include <string_view>
#  include <unordered_map>

#  include "lora/core/scalar.hpp"
#  include "lora/cpu/device.hpp"

namespace lora::cpu {

/// Everything that a prepared product depends on.
struct ProductKey {
  Index m, n, k;
  Index a_row, a_col, b_row, b_col, c_row;  ///< strides of op(a) (M, K) and op(b) (K, N); columns of c are adjacent
  float alpha;
  bool accumulate;
  DType in, out;

  friend bool operator==(const ProductKey&, const ProductKey&) = default;
};

/// Matrix products prepared by oneDNN, one for each exact shape, since its kernels for extents known only at run time
/// are far slower. Holds a bounded number, dropping the one not used for longest; each is about 120 KB of machine code.
/// Memory that a product asks for while it runs comes from the arena; kernels that pack operands take a few MB of their
/// own besides.
class OneDnn {
 public:
  static constexpr std::size_t capacity = 256;

  OneDnn() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    // The library's own cache would keep a second, larger set of the same products alive.
    dnnl::set_primitive_cache_capacity(0);
  }

  /// True where products of bf16 run on instructions made for it; elsewhere they are emulated, slower than float32.
  static bool has_bf16() {
#  if defined(__x86_64__) || defined(__i386__)
    const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
#  else
    return false;
#  endif
  }

  static std::string version() {
    const dnnl_version_t* v = dnnl_version();
    return concat(v->major, ".", v->minor, ".", v->patch);
  }

  /// c = alpha · op(a) op(b)  (+ c if accumulate), or false where oneDNN has nothing but its plain reference loops for
  /// these strides.
  bool run(Device& dev, const ProductKey& key, const void* a, const void* b, void* c) {
    dev.use_threads();
    Product& product = find(key);
    if (product.implementation.starts_with("ref")) return false;
    Arena::Scope scope(dev.arena());
    // oneDNN takes inputs through the same type as outputs; it only reads them.
    product.a.set_data_handle(const_cast<void*>(a));
    product.b.set_data_handle(const_cast<void*>(b));
    product.c.set_data_handle(c);
    if (product.scratch_bytes > 0) product.scratchpad.set_data_handle(dev.arena().scratch(product.scratch_bytes));
    product.primitive.execute(stream_, product.arguments);
    stream_.wait();
    return true;
  }

  std::size_t prepared() const { return products_.size(); }

  /// The kernel that oneDNN chose for a product that was run before.
  std::string implementation(const ProductKey& key) { return find(key).implementation; }

 private:
  struct Product {
    ProductKey key;
    dnnl::matmul primitive;
    dnnl::memory a, b, c, scratchpad;                 // without memory of their own: each call brings it
    std::unordered_map<int, dnnl::memory> arguments;  // the same four
    std::size_t scratch_bytes = 0;
    std::string implementation;
  };
  struct Hash {
    std::size_t operator()(const ProductKey& key) const {
      std::uint64_t hash = 0;
      const auto mix = [&](Index value) {
        hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
      };
      for (const Index value : {key.m, key.n, key.k, key.a_row, key.a_col, key.b_row, key.b_col, key.c_row}) mix(value);
      mix(std::bit_cast<std::int32_t>(key.alpha));
      mix((key.accumulate ? 1 : 0) + 2 * static_cast<Index>(key.in) + 256 * static_cast<Index>(key.out));
      return static_cast<std::size_t>(hash);
    }
  };

  static dnnl::memory::data_type type_of(DType dtype) {
    return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  }

  Product& find(const ProductKey& key) {
    if (const auto known = index_.find(key); known != index_.end()) {
      products_.splice(products_.begin(), products_, known->second);
      return products_.front();
    }
    Product product = prepare(key);
    if (products_.size() >= capacity) {
      index_.erase(products_.back().key);
      products_.pop_back();
    }
    products_.push_front(std::move(product));
    index_.emplace(key, products_.begin());
    return products_.front();
  }

  // oneDNN offers a kernel that multiplies blocks as they lie ("brg", its first choice) and one that packs operands
  // first ("gemm"). In float32 the latter is the faster one where the rows of b are a long inner extent, up to 2.7
  // times, unless a lies transposed and b is narrow, and where the output of x Wᵀ is both long and wide (measured on an
  // Ice Lake Xeon).
  static bool packs(const ProductKey& key) {
#  if defined(__x86_64__)
    if (key.in != DType::f32) return false;
    const bool a_transposed = key.a_row == 1, b_transposed = key.b_row == 1;
    if (b_transposed) return key.m >= 768 && key.n >= 3072;
    return key.k >= 128 && (!a_transposed || key.n >= 1024);
#  else
    static_cast<void>(key);
    return false;
#  endif
  }

  // The implementation whose name begins so, or oneDNN's first choice.
  template <class Describe>
  static dnnl::matmul::primitive_desc chosen(const Describe& describe, std::string_view name) {
    dnnl::matmul::primitive_desc description = describe();
    while (!std::string_view(description.impl_info_str()).starts_with(name))
      if (!description.next_impl()) return describe();
    return description;
  }

  Product prepare(const ProductKey& key) {
    using Dims = dnnl::memory::dims;
    Product product;
    product.key = key;
    const dnnl::memory::desc a(Dims{key.m, key.k}, type_of(key.in), Dims{key.a_row, key.a_col});
    const dnnl::memory::desc b(Dims{key.k, key.n}, type_of(key.in), Dims{key.b_row, key.b_col});
    const dnnl::memory::desc c(Dims{key.m, key.n}, type_of(key.out), Dims{key.c_row, 1});
    dnnl::post_ops after;
    if (key.alpha != 1.0f) {
#  if DNNL_VERSION_MAJOR >= 3
      after.append_eltwise(dnnl::algorithm::eltwise_linear, key.alpha, 0.0f);
#  else
      after.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, key.alpha, 0.0f);
#  endif
    }
    if (key.accumulate) after.append_sum(1.0f);
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(after);
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#  if DNNL_VERSION_MAJOR >= 3
    const auto describe = [&] { return dnnl::matmul::primitive_desc(engine_, a, b, c, attributes); };
#  else
    const dnnl::matmul::desc operation(a, b, c);  // next_impl() looks at it again
    const auto describe = [&] { return dnnl::matmul::primitive_desc(operation, attributes, engine_); };
#  endif
    const dnnl::matmul::primitive_desc description = chosen(describe, packs(key) ? "gemm" : "");
    const dnnl::memory::desc scratchpad = description.scratchpad_desc();
    product.scratch_bytes = scratchpad.get_size();
    product.a = dnnl::memory(a, engine_, nullptr);
    product.b = dnnl::memory(b, engine_, nullptr);
    product.c = dnnl::memory(c, engine_, nullptr);
    product.scratchpad = dnnl::memory(scratchpad, engine_, nullptr);
    product.arguments = {{DNNL_ARG_SRC, product.a},
                         {DNNL_ARG_WEIGHTS, product.b},
                         {DNNL_ARG_DST, product.c},
                         {DNNL_ARG_SCRATCHPAD, product.scratchpad}};
    product.implementation = description.impl_info_str();
    product.primitive = dnnl::matmul(description);
    return product;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::list<Product> products_;  // the one used last comes first
  std::unordered_map<ProductKey, std::list<Product>::iterator, Hash> index_;
};

}  // namespace lora::cpu

#endif
