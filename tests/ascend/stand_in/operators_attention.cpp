/// Attention with its softmax: forward, backward and for one new token.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "operator.hpp"
#include "product.hpp"

using namespace stand_in;

namespace {

constexpr std::int64_t kCompressed = 2048;  // rows and columns of the mask of sparse modes 2, 3 and 4
constexpr std::int64_t kBlock = 64;         // queries at a time

/// A tensor by sequence, token, head and element, whatever its layout.
struct Heads {
  Tensor view;
  std::int64_t sequences = 0, tokens = 0, heads = 0, width = 0;
  std::int64_t by_sequence = 0, by_token = 0, by_head = 0, by_element = 0;

  /// Tokens [from, from + length) of a head as a matrix.
  Tensor matrix(std::int64_t sequence, std::int64_t head, std::int64_t from, std::int64_t length) const {
    Tensor one = view;
    one.shape = {length, width};
    one.strides = {by_token, by_element};
    one.start += sequence * by_sequence + head * by_head + from * by_token;
    return one;
  }
};

/// `heads` is 0 where it follows from the width (of BSH and SBH) or the shape.
Heads heads_of(const Tensor& x, const std::string& layout, std::int64_t heads, std::int64_t width) {
  Heads all;
  all.view = x;
  const auto take = [&](std::size_t sequence, std::size_t token, std::size_t head, std::size_t element) {
    all.sequences = x.shape[sequence];
    all.tokens = x.shape[token];
    all.heads = x.shape[head];
    all.width = x.shape[element];
    all.by_sequence = x.strides[sequence];
    all.by_token = x.strides[token];
    all.by_head = x.strides[head];
    all.by_element = x.strides[element];
  };
  if (layout == "BSND" || layout == "BNSD") {
    demand(x.rank() == 4, x.name + " does not have 4 dimensions");
    layout == "BSND" ? take(0, 1, 2, 3) : take(0, 2, 1, 3);
    return all;
  }
  demand(x.rank() == 3, x.name + " does not have 3 dimensions");
  if (layout == "TND") {
    take(0, 0, 1, 2);
    all.sequences = 1;
    all.by_sequence = 0;
    return all;
  }
  demand(layout == "BSH" || layout == "SBH", "inputLayout \"" + layout + "\"");
  const std::int64_t whole = x.shape[2];
  if (width == 0) {
    demand(heads > 0 && whole % heads == 0, x.name + " is not a whole number wide for each head");
    width = whole / heads;
  }
  demand(width > 0 && whole % width == 0, x.name + " does not have whole heads");
  const bool batch_first = layout == "BSH";
  take(batch_first ? 0 : 1, batch_first ? 1 : 0, 2, 2);
  all.heads = whole / width;
  all.width = width;
  all.by_head = width * x.strides[2];
  return all;
}

/// One sequence's queries and keys.
struct Piece {
  std::int64_t sequence = 0;  // in a layout with B
  std::int64_t queries = 0, first_query = 0;
  std::int64_t keys = 0, first_key = 0;
  std::int64_t first_bit = 0;  // of the dropout mask
};

struct Attention {
  Heads q, k, v;
  Tensor mask, drop;
  std::vector<Piece> pieces;
  double scale = 1, keep = 1;
  std::int64_t before = 0, after = 0, mode = 0, precise = 0;
  bool packed = false;

  /// The keys [first, second) that query i sees, apart from what a mask says element by element.
  std::pair<std::int64_t, std::int64_t> seen(const Piece& piece, std::int64_t i) const {
    std::int64_t from = 0, to = piece.keys;
    if (!mask.present()) return {from, to};
    const std::int64_t shift = piece.keys - piece.queries;
    if (mode == 2) to = std::min(to, i + 1);
    if (mode == 3) to = std::min(to, i + shift + 1);
    if (mode == 0 || mode == 4) {
      const std::int64_t center = mode == 4 ? i + shift : i;
      if (before < center) from = std::max(from, center - before);
      if (after < to) to = std::min(to, center + after + 1);
    }
    return {std::min(from, std::max<std::int64_t>(to, 0)), std::max<std::int64_t>(to, 0)};
  }

  double pairs() const {
    double count = 0;
    for (const Piece& piece : pieces) {
      if (!mask.present() || mode == 1) {
        count += static_cast<double>(piece.queries) * static_cast<double>(piece.keys);
        continue;
      }
      for (std::int64_t i = 0; i < piece.queries; ++i) {
        const auto [from, to] = seen(piece, i);
        count += static_cast<double>(to - from);
      }
    }
    return count;
  }
};

/// What the two directions and both forms have in common.
struct Arguments {
  const aclTensor *query, *key, *value, *shift, *drop, *padding, *mask;
  const aclIntArray *prefix, *ends_q, *ends_kv;
  double scale, keep;
  std::int64_t before, after, heads;
  const char* layout;
  std::int64_t precise, mode;
  bool packed;
  // Of the later form alone.
  const aclIntArray *start_q = nullptr, *start_kv = nullptr;
  std::int64_t shift_type = 1;
};

std::vector<std::int64_t> ends_of(Operator& op, const aclIntArray* array, const char* name, std::int64_t tokens) {
  const Dims ends = op.numbers(array, name);
  demand(!ends.empty() && ends.size() <= 2048, std::string(name) + " has " + std::to_string(ends.size()) + " entries");
  std::int64_t last = 0;
  for (const std::int64_t end : ends) {
    demand(end >= last, std::string(name) + " does not rise: these are ends of sequences, not lengths");
    last = end;
  }
  demand(last == tokens, std::string(name) + " ends at " + std::to_string(last) + " of " + std::to_string(tokens));
  return ends;
}

Attention check(Operator& op, const Arguments& given) {
  Attention all;
  const Tensor q = op.input(given.query, "query", kFloats), k = op.input(given.key, "key", kFloats);
  const Tensor v = op.input(given.value, "value", kFloats);
  same_type(q, k);
  same_type(q, v);
  demand(given.shift == nullptr, "a position shift is not supported");
  demand(given.padding == nullptr, "paddingMask is reserved");
  demand(given.prefix == nullptr, "prefixes are not supported");
  demand(given.start_q == nullptr && given.start_kv == nullptr, "start indices are not supported");
  demand(given.shift_type >= 0 && given.shift_type <= 3, "pseType " + std::to_string(given.shift_type));
  if (given.layout == nullptr) refuse("inputLayout is null", ACLNN_ERR_PARAM_NULLPTR);
  const std::string layout = given.layout;
  demand(given.packed == (layout == "TND"), "inputLayout \"" + layout + "\"");
  demand(given.heads > 0 && given.heads <= 256, "headNum " + std::to_string(given.heads));
  all.packed = given.packed;
  all.q = heads_of(q, layout, given.heads, 0);
  demand(all.q.heads == given.heads,
         "headNum is " + std::to_string(given.heads) + ", query has " + std::to_string(all.q.heads));
  all.k = heads_of(k, layout, 0, all.q.width);
  demand(all.k.heads > 0 && given.heads % all.k.heads == 0, "the heads of query are no multiple of those of key");
  all.v = heads_of(v, layout, all.k.heads, 0);
  demand(all.k.width == all.q.width, "key is not as wide as query");
  demand(all.v.width <= all.k.width && all.q.width <= 512, "a width of " + std::to_string(all.q.width));
  demand(all.v.heads == all.k.heads && all.v.tokens == all.k.tokens && all.v.sequences == all.k.sequences &&
             all.k.sequences == all.q.sequences,
         "query, key and value do not go together");
  demand(given.keep > 0 && given.keep <= 1, "keepProb outside of (0, 1]");
  demand(given.precise >= 0 && given.precise <= 3, "innerPrecise " + std::to_string(given.precise));
  all.scale = given.scale;
  all.keep = given.keep;
  all.before = given.before;
  all.after = given.after;
  all.mode = given.mode;
  all.precise = given.precise;

  std::int64_t longest_q = all.q.tokens, longest_k = all.k.tokens;
  if (given.packed) {
    const std::vector<std::int64_t> ends_q = ends_of(op, given.ends_q, "actualSeqQLen", all.q.tokens);
    const std::vector<std::int64_t> ends_k = ends_of(op, given.ends_kv, "actualSeqKvLen", all.k.tokens);
    demand(ends_q.size() == ends_k.size(), "actualSeqQLen and actualSeqKvLen have different lengths");
    longest_q = longest_k = 0;
    Piece piece;
    for (std::size_t i = 0; i < ends_q.size(); ++i) {
      piece.first_bit += given.heads * piece.queries * piece.keys;
      piece.first_query += piece.queries;
      piece.first_key += piece.keys;
      piece.queries = ends_q[i] - piece.first_query;
      piece.keys = ends_k[i] - piece.first_key;
      longest_q = std::max(longest_q, piece.queries);
      longest_k = std::max(longest_k, piece.keys);
      if ((given.mode == 3 || given.mode == 4) && given.mask != nullptr)
        demand(piece.queries <= piece.keys,
               "sparse mode " + std::to_string(given.mode) + " with more queries than keys");
      all.pieces.push_back(piece);
    }
  } else {
    for (std::int64_t i = 0; i < all.q.sequences; ++i)
      all.pieces.push_back({i, all.q.tokens, 0, all.k.tokens, 0, i * given.heads * all.q.tokens * all.k.tokens});
  }

  demand(given.mode >= 0 && given.mode <= 4, "sparse mode " + std::to_string(given.mode) + " is not supported");
  demand(given.mode != 4 || given.before + given.after >= 0,
         "a band from " + std::to_string(given.before) + " before to " + std::to_string(given.after) + " behind");
  all.mask = op.optional_input(given.mask, "attenMask", {ACL_BOOL, ACL_UINT8});
  if (all.mask.present()) {
    if (given.mode >= 2) {
      const bool compressed =
          all.mask.shape == Dims{kCompressed, kCompressed} || all.mask.shape == Dims{1, 1, kCompressed, kCompressed};
      demand(compressed, "sparse mode " + std::to_string(given.mode) + " with a mask of shape " +
                             text_of(all.mask.shape) + " instead of 2048 x 2048");
    } else if (given.packed) {
      demand(all.mask.rank() == 2 && all.mask.shape[0] >= longest_q && all.mask.shape[1] >= longest_k,
             "a mask of shape " + text_of(all.mask.shape));
    } else {
      const std::int64_t rows = longest_q, columns = longest_k, batch = all.q.sequences;
      demand(all.mask.shape == Dims{rows, columns} || all.mask.shape == Dims{1, 1, rows, columns} ||
                 all.mask.shape == Dims{batch, 1, rows, columns} ||
                 all.mask.shape == Dims{batch, given.heads, rows, columns},
             "a mask of shape " + text_of(all.mask.shape));
    }
  } else if (given.mode >= 2) {
    // Real hardware then lets all queries see all keys, which nobody means.
    engine().fault("attention with sparse mode " + std::to_string(given.mode) + " and no mask");
    refuse("sparse mode " + std::to_string(given.mode) + " without a mask");
  }
  all.drop = op.optional_input(given.drop, "dropMask", {ACL_UINT8});
  if (all.drop.present()) {
    std::int64_t bits = 0;
    for (const Piece& piece : all.pieces) bits += given.heads * piece.queries * piece.keys;
    demand(all.drop.rank() == 1 && all.drop.contiguous() && all.drop.count() >= (bits + 127) / 128 * 16,
           "dropMask has " + std::to_string(all.drop.count()) + " bytes for " + std::to_string(bits) + " bits");
  } else {
    demand(given.keep == 1, "keepProb without dropMask");
  }
  return all;
}

void check_statistics(const Attention& all, const Tensor& statistic) {
  if (all.packed) {
    need_shape(statistic, {all.q.tokens, all.q.heads, 8});
  } else {
    need_shape(statistic, {all.q.sequences, all.q.heads, all.q.tokens, 8});
  }
}

/// The row of a statistic that belongs to a query. In TND its shape is (T, N, 8), but each sequence's lie as (N, S, 8):
/// the vendor's later forms of these operators have a setting for what the shape says.
std::int64_t row_of(const Attention& all, const Piece& piece, std::int64_t head, std::int64_t query) {
  return all.packed ? piece.first_query * all.q.heads + head * piece.queries + query
                    : (piece.sequence * all.q.heads + head) * all.q.tokens + query;
}

/// The shape of query with the width of value.
Dims out_shape(const Attention& all) {
  Dims shape = all.q.view.shape;
  shape.back() = shape.back() / all.q.width * all.v.width;
  return shape;
}

Heads heads_like(const Tensor& x, const Heads& like, const std::string& layout) {
  return heads_of(x, layout, like.heads, like.width);
}

/// Samples of a compressed mask: ones are above the diagonal.
void check_triangle(const Launch& launch, const Attention& all) {
  if (!all.mask.present() || all.mode < 2) return;
  Tensor square = all.mask;
  square.shape = {kCompressed, kCompressed};
  square.strides.assign(all.mask.strides.end() - 2, all.mask.strides.end());
  const Elements elements = launch(square);
  for (std::int64_t i = 0; i < kCompressed; ++i) {
    for (const std::int64_t j : {std::int64_t{0}, i - 1, i, i + 1, i * 37 % kCompressed, kCompressed - 1}) {
      if (j < 0 || j >= kCompressed) continue;
      const double value = elements.at(i * square.strides[0] + j * square.strides[1]);
      if (value == (j > i ? 1 : 0)) continue;
      engine().fault("the compressed mask of attention is not triangular at " + std::to_string(i) + ", " +
                     std::to_string(j));
      return;
    }
  }
}

/// What a mask that is given element by element says of a query's keys.
struct Masking {
  const Attention& all;
  std::vector<unsigned char> values;  // of the mask, where it is needed
  Dims shape;
  const unsigned char* drop = nullptr;

  Masking(const Launch& launch, const Attention& attention) : all(attention) {
    if (all.mask.present() && all.mode < 2) {
      shape = all.mask.shape;
      for (const double value : launch(all.mask).read()) values.push_back(value != 0);
    }
    if (all.drop.present()) drop = launch.bytes(all.drop);
    check_triangle(launch, all);
  }

  bool hidden(const Piece& piece, std::int64_t head, std::int64_t i, std::int64_t j) const {
    if (values.empty()) return false;
    std::int64_t place = 0;
    if (shape.size() == 2) {
      place = i * shape[1] + j;
    } else {
      place =
          (((shape[0] == 1 ? 0 : piece.sequence) * shape[1] + (shape[1] == 1 ? 0 : head)) * shape[2] + i) * shape[3] +
          j;
    }
    return values[static_cast<std::size_t>(place)] != 0;
  }

  /// What dropout makes of a probability: 0 or 1 / keepProb.
  double kept(const Piece& piece, std::int64_t head, std::int64_t i, std::int64_t j) const {
    if (drop == nullptr) return 1;
    const std::int64_t bit = piece.first_bit + (head * piece.queries + i) * piece.keys + j;
    return (drop[bit / 8] >> (bit % 8) & 1) != 0 ? 1 / all.keep : 0;
  }
};

std::vector<float> transposed(const std::vector<float>& x, std::int64_t rows, std::int64_t columns) {
  std::vector<float> y(x.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      y[static_cast<std::size_t>(j * rows + i)] = x[static_cast<std::size_t>(i * columns + j)];
  return y;
}

std::vector<double> transposed(const std::vector<double>& x, std::int64_t rows, std::int64_t columns) {
  std::vector<double> y(x.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      y[static_cast<std::size_t>(j * rows + i)] = x[static_cast<std::size_t>(i * columns + j)];
  return y;
}

constexpr double kHidden = -std::numeric_limits<double>::infinity();

/// Scaled scores of queries [from, from + rows) with all keys; what is hidden is -infinity.
std::vector<double> scores_of(const Attention& all, const Masking& masking, const Piece& piece, std::int64_t head,
                              std::int64_t from, std::int64_t rows, const std::vector<float>& queries,
                              const std::vector<float>& keys_turned) {
  std::vector<double> scores(static_cast<std::size_t>(rows * piece.keys), 0.0);
  add_product(queries.data() + from * all.q.width, keys_turned.data(), scores.data(), rows, all.q.width, piece.keys);
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto [first, last] = all.seen(piece, from + i);
    double* row = scores.data() + i * piece.keys;
    for (std::int64_t j = 0; j < piece.keys; ++j)
      row[j] = j < first || j >= last || masking.hidden(piece, head, from + i, j) ? kHidden : row[j] * all.scale;
  }
  return scores;
}

/// A query that sees nothing: its keys are alike unless rows without keys are asked to be 0.
constexpr double kLeast = -3.402823466e38;

/// As statistics are stored.
std::vector<double> eightfold(const std::vector<double>& once) {
  std::vector<double> values;
  values.reserve(once.size() * 8);
  for (const double value : once) values.insert(values.end(), 8, value);
  return values;
}

void forward(const Launch& launch, const Attention& all, const Heads& out, const Tensor& most, const Tensor& sum) {
  const Masking masking(launch, all);
  const std::int64_t group = all.q.heads / all.k.heads;
  std::vector<double> maxima(static_cast<std::size_t>(most.count() / 8), 0.0), sums = maxima;
  for (const Piece& piece : all.pieces) {
    if (piece.queries == 0) continue;
    for (std::int64_t head = 0; head < all.q.heads; ++head) {
      const std::vector<float> queries =
          launch(all.q.matrix(piece.sequence, head, piece.first_query, piece.queries)).read_floats();
      const std::vector<float> keys =
          transposed(launch(all.k.matrix(piece.sequence, head / group, piece.first_key, piece.keys)).read_floats(),
                     piece.keys, all.k.width);
      const std::vector<double> values =
          launch(all.v.matrix(piece.sequence, head / group, piece.first_key, piece.keys)).read();
      std::vector<double> results(static_cast<std::size_t>(piece.queries * all.v.width), 0.0);
      for (std::int64_t from = 0; from < piece.queries; from += kBlock) {
        const std::int64_t rows = std::min(kBlock, piece.queries - from);
        std::vector<double> scores = scores_of(all, masking, piece, head, from, rows, queries, keys);
        for (std::int64_t i = 0; i < rows; ++i) {
          double* row = scores.data() + i * piece.keys;
          double largest = piece.keys > 0 ? *std::max_element(row, row + piece.keys) : kHidden;
          const bool blind = largest == kHidden;
          if (blind) largest = kLeast;
          double total = 0;
          for (std::int64_t j = 0; j < piece.keys; ++j) {
            row[j] = blind ? (all.precise == 2 ? 0 : 1) : std::exp(row[j] - largest);
            total += row[j];
          }
          const auto place = static_cast<std::size_t>(row_of(all, piece, head, from + i));
          maxima[place] = largest;
          sums[place] = total;
          for (std::int64_t j = 0; j < piece.keys; ++j)
            row[j] = total == 0 ? 0 : row[j] / total * masking.kept(piece, head, from + i, j);
        }
        add_product(scores.data(), values.data(), results.data() + from * all.v.width, rows, piece.keys, all.v.width);
      }
      launch(out.matrix(piece.sequence, head, piece.first_query, piece.queries)).write(results);
    }
  }
  launch(most).write(eightfold(maxima));
  launch(sum).write(eightfold(sums));
}

/// One of the eight alike values of each row.
std::vector<double> once(const std::vector<double>& values, const std::string& name) {
  std::vector<double> all;
  for (std::size_t i = 0; i + 8 <= values.size(); i += 8) {
    for (std::size_t j = 1; j < 8; ++j) {
      if (values[i + j] == values[i]) continue;
      engine().fault(name + " is not what the forward operator wrote");
      return std::vector<double>(values.size() / 8, values[i]);
    }
    all.push_back(values[i]);
  }
  return all;
}

struct Gradient {
  Heads dy, out, dq, dk, dv;
  Tensor most, sum;
  bool fixed_order = true;
};

void backward(const Launch& launch, const Attention& all, const Gradient& grad) {
  const Masking masking(launch, all);
  const std::int64_t group = all.q.heads / all.k.heads;
  const std::int64_t width = all.q.width, out_width = all.v.width;
  const std::vector<double> maxima = once(launch(grad.most).read(), "softmaxMax of the gradient of attention");
  const std::vector<double> sums = once(launch(grad.sum).read(), "softmaxSum of the gradient of attention");
  for (const Piece& piece : all.pieces) {
    for (std::int64_t key_head = 0; key_head < all.k.heads; ++key_head) {
      const std::vector<float> keys =
          launch(all.k.matrix(piece.sequence, key_head, piece.first_key, piece.keys)).read_floats();
      const std::vector<float> keys_turned = transposed(keys, piece.keys, width);
      const std::vector<double> keys_wide(keys.begin(), keys.end());
      const std::vector<float> values_turned =
          transposed(launch(all.v.matrix(piece.sequence, key_head, piece.first_key, piece.keys)).read_floats(),
                     piece.keys, out_width);
      std::vector<double> of_keys(static_cast<std::size_t>(piece.keys * width), 0.0);
      std::vector<double> of_values(static_cast<std::size_t>(piece.keys * out_width), 0.0);
      for (std::int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
        const std::vector<float> queries =
            launch(all.q.matrix(piece.sequence, head, piece.first_query, piece.queries)).read_floats();
        const std::vector<double> queries_wide(queries.begin(), queries.end());
        const std::vector<float> slopes =
            launch(grad.dy.matrix(piece.sequence, head, piece.first_query, piece.queries)).read_floats();
        const std::vector<double> slopes_wide(slopes.begin(), slopes.end());
        const std::vector<double> results =
            launch(grad.out.matrix(piece.sequence, head, piece.first_query, piece.queries)).read();
        std::vector<double> of_queries(queries.size(), 0.0);
        for (std::int64_t from = 0; from < piece.queries; from += kBlock) {
          const std::int64_t rows = std::min(kBlock, piece.queries - from);
          std::vector<double> chances = scores_of(all, masking, piece, head, from, rows, queries, keys_turned);
          std::vector<double> changes(chances.size(), 0.0);  // of the scores
          add_product(slopes.data() + from * out_width, values_turned.data(), changes.data(), rows, out_width,
                      piece.keys);
          for (std::int64_t i = 0; i < rows; ++i) {
            const auto place = static_cast<std::size_t>(row_of(all, piece, head, from + i));
            double dot = 0;
            for (std::int64_t d = 0; d < out_width; ++d) {
              const auto at = static_cast<std::size_t>((from + i) * out_width + d);
              dot += slopes_wide[at] * results[at];
            }
            double* chance = chances.data() + i * piece.keys;
            double* change = changes.data() + i * piece.keys;
            const bool blind = std::all_of(chance, chance + piece.keys, [](double score) { return score == kHidden; });
            for (std::int64_t j = 0; j < piece.keys; ++j) {
              double p =
                  blind ? (all.precise == 2 ? 0 : 1 / sums[place]) : std::exp(chance[j] - maxima[place]) / sums[place];
              const double kept = masking.kept(piece, head, from + i, j);
              change[j] = blind ? 0 : p * (change[j] * kept - dot) * all.scale;
              chance[j] = p * kept;
            }
          }
          add_product(changes.data(), keys_wide.data(), of_queries.data() + from * width, rows, piece.keys, width);
          add_product(transposed(changes, rows, piece.keys).data(), queries_wide.data() + from * width, of_keys.data(),
                      piece.keys, rows, width);
          add_product(transposed(chances, rows, piece.keys).data(), slopes_wide.data() + from * out_width,
                      of_values.data(), piece.keys, rows, out_width);
        }
        in_any_order(of_queries, grad.fixed_order);
        launch(grad.dq.matrix(piece.sequence, head, piece.first_query, piece.queries)).write(of_queries);
      }
      in_any_order(of_keys, grad.fixed_order);
      in_any_order(of_values, grad.fixed_order);
      launch(grad.dk.matrix(piece.sequence, key_head, piece.first_key, piece.keys)).write(of_keys);
      launch(grad.dv.matrix(piece.sequence, key_head, piece.first_key, piece.keys)).write(of_values);
    }
  }
}

int prepare_forward(const char* name, const Arguments& given, const aclTensor* softmaxMaxOut,
                    const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut, const aclTensor* attentionOutOut,
                    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare(name, workspaceSize, executor, [&](Operator& op) {
    const Attention all = check(op, given);
    const Tensor most = op.output(softmaxMaxOut, "softmaxMaxOut", {ACL_FLOAT});
    const Tensor sum = op.output(softmaxSumOut, "softmaxSumOut", {ACL_FLOAT});
    const Tensor unused = op.output(softmaxOutOut, "softmaxOutOut", kFloats);
    const Tensor out = op.output(attentionOutOut, "attentionOutOut", kFloats);
    check_statistics(all, most);
    check_statistics(all, sum);
    demand(unused.count() == 0, "softmaxOutOut is not empty");
    same_type(all.q.view, out);
    need_shape(out, out_shape(all));
    Heads like = all.q;
    like.width = all.v.width;
    const Heads to = heads_like(out, like, given.layout);
    op.apart();
    op.workspace(std::uint64_t{256} << 10);
    op.flops(2 * all.pairs() * static_cast<double>(all.q.heads * (all.q.width + all.v.width)));
    op.kernel([=](const Launch& launch) { forward(launch, all, to, most, sum); });
  });
}

int prepare_backward(const char* name, const Arguments& given, const aclTensor* dy, const aclTensor* softmaxMax,
                     const aclTensor* softmaxSum, const aclTensor* softmaxIn, const aclTensor* attentionIn,
                     const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut, const aclTensor* dpseOut,
                     uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare(name, workspaceSize, executor, [&](Operator& op) {
    const Attention all = check(op, given);
    Gradient grad;
    const Tensor slopes = op.input(dy, "dy", kFloats);
    grad.most = op.input(softmaxMax, "softmaxMax", {ACL_FLOAT});
    grad.sum = op.input(softmaxSum, "softmaxSum", {ACL_FLOAT});
    const Tensor unused = op.optional_input(softmaxIn, "softmaxIn", kFloats);
    demand(!unused.present() || unused.count() == 0, "softmaxIn is not empty");
    const Tensor out = op.input(attentionIn, "attentionIn", kFloats);
    const Tensor dq = op.output(dqOut, "dqOut", kFloats), dk = op.output(dkOut, "dkOut", kFloats);
    const Tensor dv = op.output(dvOut, "dvOut", kFloats), dpse = op.output(dpseOut, "dpseOut", kFloats);
    demand(dpse.count() == 0, "dpseOut is not empty");
    demand(all.q.view.type != ACL_FLOAT || !all.mask.present() || all.mask.type == ACL_BOOL,
           "attenMask of FLOAT operands is no BOOL");
    check_statistics(all, grad.most);
    check_statistics(all, grad.sum);
    for (const Tensor& one : {slopes, out, dq, dk, dv}) same_type(all.q.view, one);
    need_shape(slopes, out_shape(all));
    need_shape(out, out_shape(all));
    same_shape(all.q.view, dq);
    same_shape(all.k.view, dk);
    same_shape(all.v.view, dv);
    Heads like = all.q;
    like.width = all.v.width;
    grad.dy = heads_like(slopes, like, given.layout);
    grad.out = heads_like(out, like, given.layout);
    grad.dq = heads_like(dq, all.q, given.layout);
    grad.dk = heads_like(dk, all.k, given.layout);
    grad.dv = heads_like(dv, all.v, given.layout);
    op.apart();
    op.workspace(std::uint64_t{512} << 10);
    op.flops(2 * all.pairs() * static_cast<double>(all.q.heads * (3 * all.q.width + 2 * all.v.width)));
    grad.fixed_order = engine().fixed_order();
    op.kernel([=](const Launch& launch) { backward(launch, all, grad); });
  });
}

/// What rows have of some keys.
struct Share {
  Tensor out, most, sum;
};

/// Whether a core has room for a row with all its heads, twice, as the operator is written in version 8.1.
bool fits_core(std::int64_t heads, std::int64_t width, std::int64_t bytes) {
  const auto whole = [](std::int64_t count) { return (count + 63) / 64 * 64; };
  return whole(heads * width) * (6 * bytes + 8) + whole(heads * 8) * 56 <= 192 * 1024;
}

void join(const Launch& launch, const Share& before, const Share& now, const Tensor& ends, const Share& both) {
  const std::int64_t rows = before.out.shape[0], heads = before.out.shape[1], width = before.out.shape[2];
  const std::vector<std::int64_t> of_sequences = launch(ends).read_integers();
  std::int64_t last = 0;
  for (const std::int64_t end : of_sequences) {
    if (end < last || end > rows) throw Launch::Trap{ACL_ERROR_RT_AICORE_EXCEPTION, "actualSeqQlen does not rise to T"};
    last = end;
  }
  if (of_sequences.front() != 0 || last != rows) engine().fault("actualSeqQlen does not go from 0 to T");
  const std::vector<double> outs[] = {launch(before.out).read(), launch(now.out).read()};
  const std::vector<double> maxima[] = {once(launch(before.most).read(), "prevSoftmaxMax"),
                                        once(launch(now.most).read(), "curSoftmaxMax")};
  const std::vector<double> sums[] = {once(launch(before.sum).read(), "prevSoftmaxSum"),
                                      once(launch(now.sum).read(), "curSoftmaxSum")};
  std::vector<double> out(outs[0].size(), 0.0), most(maxima[0].size(), 0.0), sum(most);
  for (std::size_t s = 0; s + 1 < of_sequences.size(); ++s) {
    const std::int64_t first = of_sequences[s], length = of_sequences[s + 1] - first;
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t i = 0; i < length; ++i) {
        const auto at = static_cast<std::size_t>(first * heads + head * length + i);
        most[at] = std::max(maxima[0][at], maxima[1][at]);
        double parts[2];
        for (int x = 0; x < 2; ++x) parts[x] = sums[x][at] * std::exp(maxima[x][at] - most[at]);
        sum[at] = parts[0] + parts[1];
        for (std::int64_t d = 0; d < width; ++d) {
          const auto place = static_cast<std::size_t>(((first + i) * heads + head) * width + d);
          out[place] = (outs[0][place] * parts[0] + outs[1][place] * parts[1]) / sum[at];
        }
      }
    }
  }
  launch(both.out).write(out);
  launch(both.most).write(eightfold(most));
  launch(both.sum).write(eightfold(sum));
}

}  // namespace

extern "C" {

int aclnnFlashAttentionScoreGetWorkspaceSize(const aclTensor* query, const aclTensor* key, const aclTensor* value,
                                             const aclTensor* realShiftOptional, const aclTensor* dropMaskOptional,
                                             const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
                                             const aclIntArray* prefixOptional, double scaleValue, double keepProb,
                                             int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout,
                                             int64_t innerPrecise, int64_t sparseMode, const aclTensor* softmaxMaxOut,
                                             const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut,
                                             const aclTensor* attentionOutOut, uint64_t* workspaceSize,
                                             aclOpExecutor** executor) {
  const Arguments given{query,
                        key,
                        value,
                        realShiftOptional,
                        dropMaskOptional,
                        paddingMaskOptional,
                        attenMaskOptional,
                        prefixOptional,
                        nullptr,
                        nullptr,
                        scaleValue,
                        keepProb,
                        preTokens,
                        nextTokens,
                        headNum,
                        inputLayout,
                        innerPrecise,
                        sparseMode,
                        false};
  return prepare_forward("FlashAttentionScore", given, softmaxMaxOut, softmaxSumOut, softmaxOutOut, attentionOutOut,
                         workspaceSize, executor);
}
STAND_IN_PHASE_TWO(FlashAttentionScore)

int aclnnFlashAttentionVarLenScoreGetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* realShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, double scaleValue, double keepProb, int64_t preTokens,
    int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode,
    const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut,
    const aclTensor* attentionOutOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  const Arguments given{query,
                        key,
                        value,
                        realShiftOptional,
                        dropMaskOptional,
                        paddingMaskOptional,
                        attenMaskOptional,
                        prefixOptional,
                        actualSeqQLenOptional,
                        actualSeqKvLenOptional,
                        scaleValue,
                        keepProb,
                        preTokens,
                        nextTokens,
                        headNum,
                        inputLayout,
                        innerPrecise,
                        sparseMode,
                        true};
  return prepare_forward("FlashAttentionVarLenScore", given, softmaxMaxOut, softmaxSumOut, softmaxOutOut,
                         attentionOutOut, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(FlashAttentionVarLenScore)

int aclnnRingAttentionUpdateGetWorkspaceSize(const aclTensor* prevAttnOut, const aclTensor* prevSoftmaxMax,
                                             const aclTensor* prevSoftmaxSum, const aclTensor* curAttnOut,
                                             const aclTensor* curSoftmaxMax, const aclTensor* curSoftmaxSum,
                                             const aclTensor* actualSeqQlenOptional, char* inputLayoutOptional,
                                             const aclTensor* attnOutOut, const aclTensor* softmaxMaxOut,
                                             const aclTensor* softmaxSumOut, uint64_t* workspaceSize,
                                             aclOpExecutor** executor) {
  return prepare("RingAttentionUpdate", workspaceSize, executor, [&](Operator& op) {
    Share before, now, both;
    before.out = op.input(prevAttnOut, "prevAttnOut", kFloats);
    before.most = op.input(prevSoftmaxMax, "prevSoftmaxMax", {ACL_FLOAT});
    before.sum = op.input(prevSoftmaxSum, "prevSoftmaxSum", {ACL_FLOAT});
    now.out = op.input(curAttnOut, "curAttnOut", kFloats);
    now.most = op.input(curSoftmaxMax, "curSoftmaxMax", {ACL_FLOAT});
    now.sum = op.input(curSoftmaxSum, "curSoftmaxSum", {ACL_FLOAT});
    const Tensor ends = op.input(actualSeqQlenOptional, "actualSeqQlen", {ACL_INT64});
    if (inputLayoutOptional == nullptr) refuse("inputLayout is null", ACLNN_ERR_PARAM_NULLPTR);
    const std::string layout = inputLayoutOptional;
    demand(layout == "TND", "inputLayout \"" + layout + "\" is not supported");
    both.out = op.packed_output(attnOutOut, "attnOutOut", kFloats);
    both.most = op.packed_output(softmaxMaxOut, "softmaxMaxOut", {ACL_FLOAT});
    both.sum = op.packed_output(softmaxSumOut, "softmaxSumOut", {ACL_FLOAT});
    demand(before.out.rank() == 3, "prevAttnOut does not have 3 dimensions");
    for (const Tensor& one : {now.out, both.out}) {
      same_type(before.out, one);
      same_shape(before.out, one);
    }
    const std::int64_t rows = before.out.shape[0], heads = before.out.shape[1], width = before.out.shape[2];
    for (const Tensor& one : {before.most, before.sum, now.most, now.sum, both.most, both.sum})
      need_shape(one, {rows, heads, 8});
    demand(rows > 0 && heads > 0 && width > 0, "prevAttnOut is empty");
    demand(ends.rank() == 1 && ends.count() >= 2, "actualSeqQlen has shape " + text_of(ends.shape));
    if (width % 64 != 0 || width > 768 || !fits_core(heads, width, static_cast<std::int64_t>(size_of(before.out.type))))
      refuse(std::to_string(heads) + " heads of " + std::to_string(width), ACLNN_ERR_INNER_TILING_ERROR);
    op.apart();
    op.workspace(std::uint64_t{16} << 20);
    op.flops(4.0 * static_cast<double>(rows * heads * width));
    op.kernel([=](const Launch& launch) { join(launch, before, now, ends, both); });
  });
}
STAND_IN_PHASE_TWO(RingAttentionUpdate)

int aclnnFlashAttentionScoreGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout,
    int64_t innerPrecise, int64_t sparseMode, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut,
    const aclTensor* dpseOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  const Arguments given{query,
                        keyIn,
                        value,
                        pseShiftOptional,
                        dropMaskOptional,
                        paddingMaskOptional,
                        attenMaskOptional,
                        prefixOptional,
                        nullptr,
                        nullptr,
                        scaleValue,
                        keepProb,
                        preTokens,
                        nextTokens,
                        headNum,
                        inputLayout,
                        innerPrecise,
                        sparseMode,
                        false};
  return prepare_backward("FlashAttentionScoreGrad", given, dy, softmaxMaxOptional, softmaxSumOptional,
                          softmaxInOptional, attentionInOptional, dqOut, dkOut, dvOut, dpseOut, workspaceSize,
                          executor);
}
STAND_IN_PHASE_TWO(FlashAttentionScoreGrad)

int aclnnFlashAttentionUnpaddingScoreGradGetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional, double scaleValue,
    double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise,
    int64_t sparseMode, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut,
    const aclTensor* dpseOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  const Arguments given{query,
                        keyIn,
                        value,
                        pseShiftOptional,
                        dropMaskOptional,
                        paddingMaskOptional,
                        attenMaskOptional,
                        prefixOptional,
                        actualSeqQLenOptional,
                        actualSeqKvLenOptional,
                        scaleValue,
                        keepProb,
                        preTokens,
                        nextTokens,
                        headNum,
                        inputLayout,
                        innerPrecise,
                        sparseMode,
                        true};
  return prepare_backward("FlashAttentionUnpaddingScoreGrad", given, dy, softmaxMaxOptional, softmaxSumOptional,
                          softmaxInOptional, attentionInOptional, dqOut, dkOut, dvOut, dpseOut, workspaceSize,
                          executor);
}
STAND_IN_PHASE_TWO(FlashAttentionUnpaddingScoreGrad)

int aclnnFlashAttentionScoreV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* realShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, const aclIntArray* qStartIdxOptional, const aclIntArray* kvStartIdxOptional,
    double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout,
    int64_t innerPrecise, int64_t sparseMode, int64_t pseType, const aclTensor* softmaxMaxOut,
    const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut, const aclTensor* attentionOutOut,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  const Arguments given{query,
                        key,
                        value,
                        realShiftOptional,
                        dropMaskOptional,
                        paddingMaskOptional,
                        attenMaskOptional,
                        prefixOptional,
                        nullptr,
                        nullptr,
                        scaleValue,
                        keepProb,
                        preTokens,
                        nextTokens,
                        headNum,
                        inputLayout,
                        innerPrecise,
                        sparseMode,
                        false,
                        qStartIdxOptional,
                        kvStartIdxOptional,
                        pseType};
  return prepare_forward("FlashAttentionScoreV2", given, softmaxMaxOut, softmaxSumOut, softmaxOutOut, attentionOutOut,
                         workspaceSize, executor);
}
STAND_IN_PHASE_TWO(FlashAttentionScoreV2)

int aclnnFlashAttentionVarLenScoreV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* key, const aclTensor* value, const aclTensor* realShiftOptional,
    const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional, const aclTensor* attenMaskOptional,
    const aclIntArray* prefixOptional, const aclIntArray* actualSeqQLenOptional,
    const aclIntArray* actualSeqKvLenOptional, const aclIntArray* qStartIdxOptional,
    const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens,
    int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode, int64_t pseType,
    const aclTensor* softmaxMaxOut, const aclTensor* softmaxSumOut, const aclTensor* softmaxOutOut,
    const aclTensor* attentionOutOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  const Arguments given{query,
                        key,
                        value,
                        realShiftOptional,
                        dropMaskOptional,
                        paddingMaskOptional,
                        attenMaskOptional,
                        prefixOptional,
                        actualSeqQLenOptional,
                        actualSeqKvLenOptional,
                        scaleValue,
                        keepProb,
                        preTokens,
                        nextTokens,
                        headNum,
                        inputLayout,
                        innerPrecise,
                        sparseMode,
                        true,
                        qStartIdxOptional,
                        kvStartIdxOptional,
                        pseType};
  return prepare_forward("FlashAttentionVarLenScoreV2", given, softmaxMaxOut, softmaxSumOut, softmaxOutOut,
                         attentionOutOut, workspaceSize, executor);
}
STAND_IN_PHASE_TWO(FlashAttentionVarLenScoreV2)

int aclnnFlashAttentionScoreGradV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    const aclIntArray* qStartIdxOptional, const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb,
    int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode,
    int64_t pseType, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut, const aclTensor* dpseOut,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  const Arguments given{query,
                        keyIn,
                        value,
                        pseShiftOptional,
                        dropMaskOptional,
                        paddingMaskOptional,
                        attenMaskOptional,
                        prefixOptional,
                        nullptr,
                        nullptr,
                        scaleValue,
                        keepProb,
                        preTokens,
                        nextTokens,
                        headNum,
                        inputLayout,
                        innerPrecise,
                        sparseMode,
                        false,
                        qStartIdxOptional,
                        kvStartIdxOptional,
                        pseType};
  return prepare_backward("FlashAttentionScoreGradV2", given, dy, softmaxMaxOptional, softmaxSumOptional,
                          softmaxInOptional, attentionInOptional, dqOut, dkOut, dvOut, dpseOut, workspaceSize,
                          executor);
}
STAND_IN_PHASE_TWO(FlashAttentionScoreGradV2)

int aclnnFlashAttentionUnpaddingScoreGradV2GetWorkspaceSize(
    const aclTensor* query, const aclTensor* keyIn, const aclTensor* value, const aclTensor* dy,
    const aclTensor* pseShiftOptional, const aclTensor* dropMaskOptional, const aclTensor* paddingMaskOptional,
    const aclTensor* attenMaskOptional, const aclTensor* softmaxMaxOptional, const aclTensor* softmaxSumOptional,
    const aclTensor* softmaxInOptional, const aclTensor* attentionInOptional, const aclIntArray* prefixOptional,
    const aclIntArray* actualSeqQLenOptional, const aclIntArray* actualSeqKvLenOptional,
    const aclIntArray* qStartIdxOptional, const aclIntArray* kvStartIdxOptional, double scaleValue, double keepProb,
    int64_t preTokens, int64_t nextTokens, int64_t headNum, char* inputLayout, int64_t innerPrecise, int64_t sparseMode,
    int64_t pseType, const aclTensor* dqOut, const aclTensor* dkOut, const aclTensor* dvOut, const aclTensor* dpseOut,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  const Arguments given{query,
                        keyIn,
                        value,
                        pseShiftOptional,
                        dropMaskOptional,
                        paddingMaskOptional,
                        attenMaskOptional,
                        prefixOptional,
                        actualSeqQLenOptional,
                        actualSeqKvLenOptional,
                        scaleValue,
                        keepProb,
                        preTokens,
                        nextTokens,
                        headNum,
                        inputLayout,
                        innerPrecise,
                        sparseMode,
                        true,
                        qStartIdxOptional,
                        kvStartIdxOptional,
                        pseType};
  return prepare_backward("FlashAttentionUnpaddingScoreGradV2", given, dy, softmaxMaxOptional, softmaxSumOptional,
                          softmaxInOptional, attentionInOptional, dqOut, dkOut, dvOut, dpseOut, workspaceSize,
                          executor);
}
STAND_IN_PHASE_TWO(FlashAttentionUnpaddingScoreGradV2)

int aclnnIncreFlashAttentionV4GetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pseShift,
    const aclTensor* attenMask, const aclIntArray* actualSeqLengths, const aclTensor* dequantScale1,
    const aclTensor* quantScale1, const aclTensor* dequantScale2, const aclTensor* quantScale2,
    const aclTensor* quantOffset2, const aclTensor* antiquantScale, const aclTensor* antiquantOffset,
    const aclTensor* blocktable, const aclTensor* kvPaddingSize, int64_t numHeads, double scaleValue, char* inputLayout,
    int64_t numKeyValueHeads, int64_t blockSize, int64_t innerPrecise, const aclTensor* attentionOut,
    uint64_t* workspaceSize, aclOpExecutor** executor) {
  return prepare("IncreFlashAttentionV4", workspaceSize, executor, [&](Operator& op) {
    const Types halves = {ACL_FLOAT16, ACL_BF16};
    const Tensor q = op.input(query, "query", halves);
    const std::vector<Tensor> keys = op.inputs(key, "key", halves), values = op.inputs(value, "value", halves);
    for (const aclTensor* one : {pseShift, attenMask, dequantScale1, quantScale1, dequantScale2, quantScale2,
                                 quantOffset2, antiquantScale, antiquantOffset, blocktable, kvPaddingSize})
      demand(one == nullptr, "masks, shifts, quantization, pages and padding are not supported");
    demand(blockSize == 0 && (innerPrecise == 0 || innerPrecise == 1), "blockSize or innerPrecise");
    if (inputLayout == nullptr) refuse("inputLayout is null", ACLNN_ERR_PARAM_NULLPTR);
    const std::string layout = inputLayout;
    demand(layout == "BSH" || layout == "BSND" || layout == "BNSD", "inputLayout \"" + layout + "\"");
    demand(keys.size() == 1 && values.size() == 1, "key and value are lists of one tensor each");
    const Tensor out = op.output(attentionOut, "attentionOut", halves);
    Attention all;
    all.q = heads_of(q, layout, numHeads, 0);
    demand(all.q.heads == numHeads && all.q.tokens == 1, "query has more than one token, or not numHeads heads");
    all.k = heads_of(keys[0], layout, 0, all.q.width);
    all.v = heads_of(values[0], layout, 0, all.q.width);
    demand(all.k.heads == (numKeyValueHeads == 0 ? numHeads : numKeyValueHeads) && numHeads % all.k.heads == 0,
           "numKeyValueHeads");
    same_type(q, keys[0]);
    same_type(q, values[0]);
    same_shape(keys[0], values[0]);
    demand(all.k.sequences == all.q.sequences && all.k.width == all.q.width, "query, key and value do not go together");
    same_type(q, out);
    same_shape(q, out);
    all.scale = scaleValue;
    const Dims lengths = actualSeqLengths != nullptr ? op.numbers(actualSeqLengths, "actualSeqLengths") : Dims{};
    demand(lengths.size() <= 1 || lengths.size() == static_cast<std::size_t>(all.q.sequences),
           "actualSeqLengths has " + std::to_string(lengths.size()) + " entries");
    for (std::int64_t i = 0; i < all.q.sequences; ++i) {
      const std::int64_t length = lengths.empty()       ? all.k.tokens
                                  : lengths.size() == 1 ? lengths[0]
                                                        : lengths[static_cast<std::size_t>(i)];
      demand(length >= 0 && length <= all.k.tokens, "a length of " + std::to_string(length));
      all.pieces.push_back({i, 1, 0, length, 0, 0});
    }
    const Heads to = heads_of(out, layout, numHeads, 0);
    op.apart();
    op.workspace(std::uint64_t{256} << 10);
    op.flops(4 * all.pairs() * static_cast<double>(all.q.heads * all.q.width));
    op.kernel([=](const Launch& launch) {
      const std::int64_t group = all.q.heads / all.k.heads;
      for (const Piece& piece : all.pieces) {
        for (std::int64_t head = 0; head < all.q.heads; ++head) {
          const std::vector<double> one = launch(all.q.matrix(piece.sequence, head, 0, 1)).read();
          const std::vector<double> k = launch(all.k.matrix(piece.sequence, head / group, 0, piece.keys)).read();
          const std::vector<double> v = launch(all.v.matrix(piece.sequence, head / group, 0, piece.keys)).read();
          std::vector<double> chances(static_cast<std::size_t>(piece.keys), 0.0), result(one.size(), 0.0);
          add_product(k.data(), one.data(), chances.data(), piece.keys, all.q.width, 1);
          double most = kHidden, sum = 0;
          for (double& score : chances) most = std::max(most, score *= all.scale);
          for (double& score : chances) sum += score = std::exp(score - most);
          for (double& score : chances) score /= sum;
          add_product(chances.data(), v.data(), result.data(), 1, piece.keys, all.q.width);
          launch(to.matrix(piece.sequence, head, 0, 1)).write(result);
        }
      }
    });
  });
}
STAND_IN_PHASE_TWO(IncreFlashAttentionV4)

}  // extern "C"
