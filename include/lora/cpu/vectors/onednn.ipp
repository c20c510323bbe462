#pragma once

#if defined(LORA_WITH_ONEDNN)

#  include <algorithm>
#  include <bit>
#  include <cstddef>
#  include <cstdint>
#  include <exception>
#  include <list>
#  include <oneapi/dnnl/dnnl.hpp>
#  include <string>
#  include <string_view>
#  include <unordered_map>
#  include <utility>
#  include <vector>

#  include "lora/core/config.hpp"
#  include "lora/cpu/vectors/onednn.hpp"

namespace lora::cpu {

class OneDnn::Products {
 public:
  Products() : engine_(dnnl::engine::kind::cpu, 0), streams_{dnnl::stream(engine_)} {
    // The library's own cache would keep a second, larger set of the same products alive.
    dnnl::set_primitive_cache_capacity(0);
  }

  static bool has(dnnl::cpu_isa isa) {
    const auto wanted = static_cast<unsigned>(isa);
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
  }

  bool run(Device& dev, ProductKey key, const void* a, const void* b, void* c) {
    key.alone = is_small(key);
    const Threads threads(key.alone ? 1 : dev.threads());
    const Arena::Scope scope(dev.arena());
    const Tile tile = tile_of(key, dev.threads());
    if ((tile.rows < key.m || tile.cols < key.n) && run_tiles(dev, key, tile, a, b, c)) return true;
    const Product& product = find(key);
    if (product.is_reference()) return false;
    execute(product, streams_.front(), a, b, c, dev.arena().scratch(product.scratch_bytes()));
    return true;
  }

  bool run_sum(Device& dev, const std::vector<Term>& terms, const Store& store) {
    if (terms.empty()) return false;
    const ProductKey& whole = terms.front().key;
    const Tile tile = bf16_tile_of(whole, dev.threads());
    if (tile.rows == whole.m && tile.cols == whole.n) return false;
    const Tiling tiling(whole, tile);
    std::vector<TileProducts> products(terms.size());
    std::size_t product_scratch = 0;
    for (std::size_t t = 0; t < terms.size(); ++t) {
      ProductKey part = terms[t].key;
      part.c_row = tile.cols;
      part.accumulate = t > 0;
      if (!prepare_tiles(part, tiling, products[t])) return false;
      product_scratch = std::max(product_scratch, products[t].scratch_bytes);
    }
    const std::size_t sum_bytes = in_lines(static_cast<std::size_t>(tile.rows * tile.cols) * sizeof(float));
    const Arena::Scope scope(dev.arena());
    for_tiles(dev, tiling, static_cast<double>(terms.size()) * work_of(whole), sum_bytes + product_scratch,
              [&](Index row, Index column, dnnl::stream& stream, std::byte* own) {
                const Index i = row * tile.rows, j = column * tile.cols;
                for (std::size_t t = 0; t < terms.size(); ++t) {
                  const ProductKey& key = terms[t].key;
                  execute(products[t].at(tiling, row, column), stream, element(terms[t].a, i * key.a_row, key.in),
                          element(terms[t].b, j * key.b_col, key.in), own, own + sum_bytes);
                }
                store(i, j, tiling.rows_of(row), tiling.cols_of(column), own, tile.cols);
              });
    return true;
  }

  std::size_t prepared() const { return products_.size(); }

  std::size_t references() const {
    return static_cast<std::size_t>(std::count_if(products_.begin(), products_.end(),
                                                  [](const Product& product) { return product.is_reference(); }));
  }

  std::string implementation(const ProductKey& key) { return find(key).implementation; }

 private:
  struct Product {
    ProductKey key;
    dnnl::matmul primitive;
    dnnl::memory::desc a, b, c, scratchpad;
    std::string implementation;
    bool is_scaled = false;  // by alpha as a scale of b, not by an operation on the output

    std::size_t scratch_bytes() const { return scratchpad.get_size(); }
    bool is_reference() const { return implementation.starts_with("ref"); }
  };

  /// The number of threads that a primitive is prepared for while this lives.
  class Threads {
   public:
    explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
    ~Threads() { omp_set_num_threads(before_); }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;

   private:
    int before_;
  };

  /// Products of few rows, as in decoding, are cut into tiles of so many columns, whatever the number of threads.
  static constexpr Index few_rows = 8, tile_cols = 256;

  /// A few microseconds of work, too little to wake another thread. Reading or writing an element takes about as long
  /// as 12 multiplications.
  static bool is_small(const ProductKey& key) { return work_of(key) < 80'000; }

  /// The elements that are read, changed and written in that time (see Threads::parallel_items).
  static double work_of(const ProductKey& key) {
    const auto m = static_cast<double>(key.m), n = static_cast<double>(key.n), k = static_cast<double>(key.k);
    return m * n * k / 12 + m * k + k * n + m * n;
  }

  /// Extents of c that one thread computes at a time.
  struct Tile {
    Index rows, cols;
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
      mix((key.accumulate ? 1 : 0) + (key.alone ? 2 : 0) + 4 * static_cast<Index>(key.in) +
          256 * static_cast<Index>(key.out));
      return hash;
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

  // oneDNN has an implementation that multiplies blocks in place ("brg", its first choice) and one that packs operands
  // first ("gemm"). In float32 the latter is the faster one where the rows of b are a long inner extent, up to 2.7
  // times, unless a lies transposed and b is narrow, and where the output of x Wᵀ is both long and wide (measured on an
  // Ice Lake Xeon).
  static bool packs(const ProductKey& key) {
#  if defined(__x86_64__)
    if (key.in != DType::f32) return false;
    const bool a_transposed = key.a_row == 1, b_transposed = key.b_row == 1;
    const bool column_tile = key.alone && key.c_row > key.n;
    if (b_transposed) return key.m >= 768 && (key.n >= 3072 || column_tile);
    return key.k >= 128 && (!a_transposed || key.n >= 1024);
#  else
    static_cast<void>(key);
    return false;
#  endif
  }

  // The first implementation with this prefix, or oneDNN's first choice.
  template <class Describe>
  static dnnl::matmul::primitive_desc chosen(const Describe& describe, std::string_view name) {
    dnnl::matmul::primitive_desc description = describe();
    while (!std::string_view(description.impl_info_str()).starts_with(name))
      if (!description.next_impl()) return describe();
    return description;
  }

  // Two to four tiles for each thread: rows of c, about 128 or more, since every tile reads b again. The packing
  // implementation packs b in every tile; x Wᵀ is then cut into columns, about 768 or more, and dy W stays whole where
  // its n is the larger extent (measured on an Ice Lake Xeon with two threads, in float32; elsewhere nothing is cut).
  static Tile tile_of(const ProductKey& key, int threads) {
    const Tile whole{key.m, key.n};
    if (key.m <= few_rows && key.b_row == 1 && key.n > tile_cols) return {key.m, tile_cols};
#  if defined(__x86_64__) && DNNL_CPU_RUNTIME == DNNL_RUNTIME_OMP
    if (key.in == DType::bf16) return bf16_tile_of(key, threads);
    const bool b_transposed = key.b_row == 1, columns = b_transposed && packs(key);
    if (threads == 1 || key.in != DType::f32 || key.a_col != 1 || key.k < 128 || key.n < 256) return whole;
    // The implementation that does not pack needs AVX-512 and a dense c.
    if (b_transposed && !columns && (key.c_row > key.n || !has_avx512())) return whole;
    if (!b_transposed && key.n > key.k) return whole;
    const Index extent = columns ? key.n : key.m;
    const Index each = std::min<Index>(extent / ((columns ? 768 : 128) * threads), columns ? 2 : 4);
    if (each < 2) return whole;
    const Index step = ((extent + each * threads - 1) / (each * threads) + 7) / 8 * 8;
    return columns ? Tile{key.m, step} : Tile{step, key.n};
#  else
    static_cast<void>(threads);
    return whole;
#  endif
  }

  static Index parts_of(Index extent, Index each) { return (extent + each - 1) / each; }

  // In bfloat16 a tile of about 256 rows and 512 columns is multiplied faster than more at once, on one thread too: its
  // operands and its output stay in a core's own cache. Where a long inner extent runs over b's rows, more rows share
  // each packing of b (measured on a Zen 5).
  static Tile bf16_tile_of(const ProductKey& key, int threads) {
    const Tile whole{key.m, key.n};
    constexpr Index least_rows = 64, least_cols = 128;
    if (key.a_col != 1 || key.m < 2 * least_rows || key.n < least_cols || key.k < least_cols) return whole;
    const bool deep = key.b_row != 1 && key.k > key.n;
    Index down = parts_of(key.m, deep ? 512 : 256), across = parts_of(key.n, deep ? 1024 : 640);
    while (down * across < threads && key.n >= 2 * across * least_cols) across *= 2;
    // As many for each thread, where there are few.
    while (down * across < 4 * threads && down * across % threads != 0) ++down;
    if (down * across < threads || key.m < down * least_rows) return whole;
    const auto step = [](Index extent, Index parts, Index multiple) {
      return parts_of(parts_of(extent, parts), multiple) * multiple;
    };
    return {std::min(key.m, step(key.m, down, 8)), std::min(key.n, step(key.n, across, 64))};
  }

  /// Tiles over an output, all of one size but at its lower and right edges.
  struct Tiling {
    Tile tile;
    Index down, across, last_rows, last_cols;

    Tiling(const ProductKey& whole, const Tile& each)
        : tile(each),
          down((whole.m + each.rows - 1) / each.rows),
          across((whole.n + each.cols - 1) / each.cols),
          last_rows(whole.m - (down - 1) * each.rows),
          last_cols(whole.n - (across - 1) * each.cols) {}
    Index rows_of(Index row) const { return row + 1 == down ? last_rows : tile.rows; }
    Index cols_of(Index column) const { return column + 1 == across ? last_cols : tile.cols; }
  };

  /// A product for each size of tile: [at the lower edge][at the right edge].
  struct TileProducts {
    const Product* products[2][2];
    std::size_t scratch_bytes = 0;

    const Product& at(const Tiling& tiling, Index row, Index column) const {
      return *products[row + 1 == tiling.down][column + 1 == tiling.across];
    }
  };

  static constexpr std::size_t in_lines(std::size_t bytes) {
    constexpr std::size_t line = Arena::alignment;
    return (bytes + line - 1) / line * line;
  }

  static const std::byte* element(const void* data, Index index, DType dtype) {
    return static_cast<const std::byte*>(data) + bytes_of(dtype, index);
  }

  /// False where oneDNN has only its reference implementation.
  bool prepare_tiles(ProductKey part, const Tiling& tiling, TileProducts& found) {
    part.alone = true;
    for (const bool low : {false, true})
      for (const bool right : {false, true}) {
        part.m = low ? tiling.last_rows : tiling.tile.rows;
        part.n = right ? tiling.last_cols : tiling.tile.cols;
        const Product& product = find(part);
        if (product.is_reference()) return false;
        found.products[low][right] = &product;
        found.scratch_bytes = std::max(found.scratch_bytes, in_lines(product.scratch_bytes()));
      }
    return true;
  }

  /// Calls work(row, column, stream, memory) for each tile, on whichever thread is free, each with `bytes` of memory.
  template <class Work>
  void for_tiles(Device& dev, const Tiling& tiling, double product_work, std::size_t bytes, const Work& work) {
    while (streams_.size() < static_cast<std::size_t>(dev.threads())) streams_.emplace_back(engine_);
    const auto memory = lora::scratch<std::byte>(dev, dev.threads(), static_cast<Index>(bytes));
    const Threads alone(1);
    std::exception_ptr error;
    const Index count = tiling.down * tiling.across;
    const auto form = [&](Index item) {
      const int thread = omp_get_thread_num();
      try {
        work(item / tiling.across, item % tiling.across, streams_[static_cast<std::size_t>(thread)],
             memory.row(thread));
      } catch (...) {
#  pragma omp critical
        error = std::current_exception();
      }
    };
    dev.parallel_items(count, form, product_work / static_cast<double>(count));
    if (error) std::rethrow_exception(error);
  }

  bool run_tiles(Device& dev, const ProductKey& key, const Tile& tile, const void* a, const void* b, void* c) {
    const Tiling tiling(key, tile);
    TileProducts products;
    if (!prepare_tiles(key, tiling, products)) return false;
    for_tiles(dev, tiling, work_of(key), products.scratch_bytes,
              [&](Index row, Index column, dnnl::stream& stream, std::byte* scratch) {
                const Index i = row * tile.rows, j = column * tile.cols;
                execute(products.at(tiling, row, column), stream, element(a, i * key.a_row, key.in),
                        element(b, j * key.b_col, key.in),
                        const_cast<std::byte*>(element(c, i * key.c_row + j, key.out)), scratch);
              });
    return true;
  }

  void execute(const Product& product, dnnl::stream& stream, const void* a, const void* b, void* c,
               void* scratch) const {
    // oneDNN takes inputs through the same type as outputs; it only reads them.
    std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, {product.a, engine_, const_cast<void*>(a)}},
                                                    {DNNL_ARG_WEIGHTS, {product.b, engine_, const_cast<void*>(b)}},
                                                    {DNNL_ARG_DST, {product.c, engine_, c}},
                                                    {DNNL_ARG_SCRATCHPAD, {product.scratchpad, engine_, scratch}}};
#  if DNNL_VERSION_MAJOR >= 3
    float scale = product.key.alpha;
    if (product.is_scaled)
      arguments.emplace(
          DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS,
          dnnl::memory({{1}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::x}, engine_, &scale));
#  endif
    product.primitive.execute(stream, arguments);
    stream.wait();
  }

  Product prepare(const ProductKey& key) {
    Product product = prepare(key, false);
    if (key.alpha == 1.0f || !product.is_reference()) return product;
    // Without AVX-512 no other implementation takes an operation on the output before the sum, but all take a scale.
    return prepare(key, true);
  }

  Product prepare(const ProductKey& key, bool scaled) {
    using Dims = dnnl::memory::dims;
    const Threads threads(key.alone ? 1 : omp_get_max_threads());
    Product product;
    product.key = key;
    product.is_scaled = scaled;
    const dnnl::memory::desc a(Dims{key.m, key.k}, type_of(key.in), Dims{key.a_row, key.a_col});
    const dnnl::memory::desc b(Dims{key.k, key.n}, type_of(key.in), Dims{key.b_row, key.b_col});
    const dnnl::memory::desc c(Dims{key.m, key.n}, type_of(key.out), Dims{key.c_row, 1});
    const dnnl::primitive_attr attributes = attributes_of(key, scaled);
#  if DNNL_VERSION_MAJOR >= 3
    const auto describe = [&] { return dnnl::matmul::primitive_desc(engine_, a, b, c, attributes); };
#  else
    const dnnl::matmul::desc operation(a, b, c);  // next_impl() refers to it
    const auto describe = [&] { return dnnl::matmul::primitive_desc(operation, attributes, engine_); };
#  endif
    const dnnl::matmul::primitive_desc description = chosen(describe, packs(key) ? "gemm" : "");
    product.a = a;
    product.b = b;
    product.c = c;
    product.scratchpad = description.scratchpad_desc();
    product.implementation = description.impl_info_str();
    product.primitive = dnnl::matmul(description);
    return product;
  }

  // alpha and the sum, `scaled` as Product::is_scaled says.
  static dnnl::primitive_attr attributes_of(const ProductKey& key, bool scaled) {
    dnnl::primitive_attr attributes;
    dnnl::post_ops after;
#  if DNNL_VERSION_MAJOR >= 3
    if (scaled) attributes.set_scales_mask(DNNL_ARG_WEIGHTS, 0);
    if (!scaled && key.alpha != 1.0f) after.append_eltwise(dnnl::algorithm::eltwise_linear, key.alpha, 0.0f);
#  else
    if (scaled) attributes.set_output_scales(0, {key.alpha});
    if (!scaled && key.alpha != 1.0f) after.append_eltwise(1.0f, dnnl::algorithm::eltwise_linear, key.alpha, 0.0f);
#  endif
    if (key.accumulate) after.append_sum(1.0f);
    attributes.set_post_ops(after);
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attributes;
  }

  dnnl::engine engine_;
  std::vector<dnnl::stream> streams_;  // one for each thread
  std::list<Product> products_;        // the one used last comes first
  std::unordered_map<ProductKey, std::list<Product>::iterator, Hash> index_;
};

LORA_INLINE OneDnn::OneDnn() : products_(std::make_unique<Products>()) {}
LORA_INLINE OneDnn::~OneDnn() = default;

LORA_INLINE bool OneDnn::has_avx512() {
#  if defined(__x86_64__) || defined(__i386__)
  return Products::has(dnnl::cpu_isa::avx512_core);
#  else
  return false;
#  endif
}

LORA_INLINE bool OneDnn::has_bf16() {
#  if defined(__x86_64__) || defined(__i386__)
  return Products::has(dnnl::cpu_isa::avx512_core_bf16);
#  else
  return false;
#  endif
}

LORA_INLINE std::string OneDnn::version() {
  const dnnl_version_t* v = dnnl_version();
  return concat(v->major, ".", v->minor, ".", v->patch);
}

LORA_INLINE bool OneDnn::run(Device& dev, ProductKey key, const void* a, const void* b, void* c) {
  return products_->run(dev, key, a, b, c);
}

LORA_INLINE bool OneDnn::run_sum(Device& dev, const std::vector<Term>& terms, const Store& store) {
  return products_->run_sum(dev, terms, store);
}

LORA_INLINE std::size_t OneDnn::prepared() const { return products_->prepared(); }
LORA_INLINE std::size_t OneDnn::references() const { return products_->references(); }
LORA_INLINE std::string OneDnn::implementation(const ProductKey& key) { return products_->implementation(key); }

}  // namespace lora::cpu

#endif
