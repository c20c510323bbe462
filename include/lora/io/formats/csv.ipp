#pragma once

#ifdef LORA_WITH_CSV
#  include <csv.h>
#endif

#include <algorithm>
#include <exception>

#include "lora/core/config.hpp"
#include "lora/io/files/text_encoding.hpp"
#include "lora/io/formats/csv.hpp"

namespace lora::io {

#ifdef LORA_WITH_CSV

/// libcsv's, of which each call is given what ends at most one row.
struct CsvRows::Parser {
  explicit Parser(char separator, Cells keep) : kept(keep == Cells::kept) {
    if (csv_init(&own, strict) != 0) lora::fail<IoError>("libcsv could not begin");
    csv_set_delim(&own, static_cast<unsigned char>(separator));
    csv_set_space_func(&own, [](unsigned char) { return 0; });
  }
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;
  ~Parser() { csv_free(&own); }

  void begin_row() {
    cells.clear();
    count = 0;
    ended = false;
  }

  /// The number of bytes that it took: all, or those before text that stands behind a closing quote.
  std::size_t feed(std::string_view piece) {
    std::size_t taken = 0;
    while (taken < piece.size()) {
      const std::size_t given = std::min(piece.size() - taken, part);
      csv_set_blk_size(&own, std::max(part, csv_get_buffer_size(&own)));  // by which it grows
      const std::size_t read = csv_parse(&own, piece.data() + taken, given, &cell_ends, &row_ends, this);
      check();
      taken += read;
      if (read == given) continue;
      if (own.quoted != 0) return taken;
      // A quote in a cell that doesn't begin with one, of which RFC 4180 has none.
      csv_set_opts(&own, 0);
      taken += csv_parse(&own, piece.data() + taken, 1, &cell_ends, &row_ends, this);
      csv_set_opts(&own, strict);
      check();
    }
    return taken;
  }

  /// Ends the last row; false if a quote is open.
  bool finish() {
    const bool closed = csv_fini(&own, &cell_ends, &row_ends, this) == 0;
    check();
    return closed;
  }

  csv_parser own{};
  bool kept, ended = false;
  Index count = 0;
  std::vector<std::string> cells;

 private:
  static constexpr std::size_t part = std::size_t{1} << 16;
  static constexpr unsigned char strict = CSV_STRICT | CSV_STRICT_FINI;

  static void cell_ends(void* text, std::size_t size, void* parser) {
    auto& to = *static_cast<Parser*>(parser);
    ++to.count;
    if (!to.kept || to.failure) return;
    try {
      to.cells.emplace_back(static_cast<const char*>(text), size);
    } catch (...) {  // nothing may be thrown through functions of C
      to.failure = std::current_exception();
    }
  }
  static void row_ends(int, void* parser) { static_cast<Parser*>(parser)->ended = true; }

  void check() {
    if (failure) std::rethrow_exception(failure);
    if (const int error = csv_error(&own); error == CSV_ENOMEM || error == CSV_ETOOBIG)
      lora::fail<IoError>("libcsv has no memory for a cell");
  }

  std::exception_ptr failure;
};

LORA_INLINE CsvRows::CsvRows(std::string_view text, const std::string& name, char separator, Cells cells,
                             std::size_t at, Index line, std::size_t most)
    : text_(text),
      name_(name),
      separator_(separator),
      begin_(at),
      end_(at),
      next_begin_(at),
      line_(line),
      next_line_(line),
      most_(most),
      parser_(std::make_unique<Parser>(separator, cells)) {}

LORA_INLINE bool CsvRows::next() {
  std::string_view piece;
  while (is_blank(piece = line_from(next_begin_)) && !piece.empty()) {
    next_begin_ += piece.size();
    ++next_line_;
  }
  if (piece.empty()) return false;
  begin_ = next_begin_;
  line_ = next_line_;
  parser_->begin_row();
  for (;; piece = line_from(next_begin_)) {
    if (piece.empty()) {
      end_ = next_begin_;
      if (!parser_->finish())
        fail<FormatError>(place_of(begin_of(parser_->count)), ": a quote opens here that is never closed");
      return true;
    }
    if (next_begin_ - begin_ + piece.size() > most_)
      fail<FormatError>(place_of(begin_of(parser_->count)), ": a row of more than ", most_, " bytes; expected a ",
                        "shorter one, and that the end of each quote is there");
    if (const auto zero = piece.find('\0'); zero != piece.npos) {
      const std::string_view some = text_.substr(0, std::size_t{1} << 16);
      const auto zeros = std::count(some.begin(), some.end(), '\0');
      if (zeros > std::ssize(some) / 8) refuse_wide_text(name_, text_, false);
      fail<FormatError>(place_of(next_begin_ + zero), ": a zero byte; expected text");
    }
    if (const std::size_t taken = parser_->feed(piece); taken < piece.size())
      fail<FormatError>(place_of(next_begin_ + taken), ": text behind a closing quote; expected ",
                        separator_ == '\t' ? std::string("a tab") : std::string(1, separator_),
                        " or the end of the line: a quote inside of quotes is written twice");
    next_begin_ += piece.size();
    ++next_line_;
    if (parser_->ended) break;
  }
  end_ = next_begin_ - (piece.ends_with("\r\n") ? 2 : 1);
  return true;
}

LORA_INLINE Index CsvRows::count() const { return parser_->count; }

LORA_INLINE std::vector<std::string>& CsvRows::cells() { return parser_->cells; }

LORA_INLINE std::size_t CsvRows::begin_of(Index cell) const {
  Parser again(separator_, Cells::counted);
  std::size_t at = begin_;
  for (; again.count < cell && at < text_.size(); ++at) again.feed(text_.substr(at, 1));
  return at;
}

#else

struct CsvRows::Parser {};

LORA_INLINE CsvRows::CsvRows(std::string_view text, const std::string& name, char separator, Cells, std::size_t at,
                             Index line, std::size_t most)
    : text_(text),
      name_(name),
      separator_(separator),
      begin_(at),
      end_(at),
      next_begin_(at),
      line_(line),
      next_line_(line),
      most_(most) {
  fail<FormatError>(name, ": a table as text, which this program was built without (libcsv was not found); expected ",
                    "JSON records: in Python, pandas.read_csv(NAME).to_json('NAME.jsonl', orient='records', ",
                    "lines=True) writes them");
}

LORA_INLINE bool CsvRows::next() { return false; }
LORA_INLINE Index CsvRows::count() const { return 0; }
LORA_INLINE std::vector<std::string>& CsvRows::cells() { std::terminate(); }
LORA_INLINE std::size_t CsvRows::begin_of(Index) const { return begin_; }

#endif

LORA_INLINE CsvRows::~CsvRows() = default;

LORA_INLINE std::size_t CsvRows::begin() const { return begin_; }
LORA_INLINE std::size_t CsvRows::end() const { return end_; }
LORA_INLINE std::size_t CsvRows::next_begin() const { return next_begin_; }
LORA_INLINE Index CsvRows::line() const { return line_; }
LORA_INLINE Index CsvRows::next_line() const { return next_line_; }

LORA_INLINE std::string CsvRows::place_of(std::size_t at) const {
  Index line = line_;
  std::size_t begin = begin_;
  for (std::string_view one = line_from(begin);
       begin + one.size() <= at && (one.ends_with('\n') || one.ends_with('\r')); one = line_from(begin)) {
    begin += one.size();
    ++line;
  }
  return concat(name_, ":", line, ":", at - begin + 1);
}

/// To the end of the line, with it.
LORA_INLINE std::string_view CsvRows::line_from(std::size_t at) const {
  const std::string_view rest = text_.substr(at);
  const auto end = std::find_if(rest.begin(), rest.end(), [](char c) { return c == '\n' || c == '\r'; });
  const auto size = static_cast<std::size_t>(end - rest.begin());
  return rest.substr(0, size + (rest.substr(size).starts_with("\r\n") ? 2 : 1));
}

LORA_INLINE bool CsvRows::is_blank(std::string_view line) const {
  return std::all_of(line.begin(), line.end(),
                     [&](char c) { return (c == ' ' || c == '\t' || c == '\r' || c == '\n') && c != separator_; });
}

}  // namespace lora::io
