#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lora/jinja/limits.hpp"
#include "lora/jinja/value.hpp"

// The syntax tree of a template.

namespace lora::jinja {

/// The number of a name in a template.
using Symbol = std::uint32_t;

enum class Operator : std::uint8_t {
  none,
  add,
  subtract,
  multiply,
  divide,
  divide_whole,
  modulo,
  power,
  equal,
  unequal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};  // clang-format off

struct Expr {
  enum class Kind : std::uint8_t {
    constant,   ///< value
    name,       ///< symbol
    list,       ///< parts
    tuple,      ///< parts
    dict,       ///< parts: keys and values in turn
    attribute,  ///< of parts[0]: value
    item,       ///< of parts[0]: parts[1]
    slice,      ///< of parts[0]: parts[1], parts[2], parts[3], each of kind nothing where it is left out
    call,       ///< parts[0], with the arguments that follow, the last ones by names
    filter,     ///< function, of parts[0], with arguments as its signature has them
    test,       ///< the same
    negative,   ///< of parts[0]
    positive,
    negation,   ///< not parts[0]
    binary,     ///< operation
    compare,    ///< parts in a row, with an operation between each two
    all,        ///< and
    any,        ///< or
    choice,     ///< parts[0] if parts[1] else parts[2], which may be nothing
    join,       ///< ~
    nothing,
  };

  Kind kind = Kind::nothing;
  Operator operation = Operator::none;
  Place place{};
  int depth = 1;
  Symbol symbol = 0;
  std::uint32_t function = 0;  ///< its place in the table of filters or tests
  Value value{};
  std::vector<Expr> parts{};
  std::vector<Operator> operations{};
  std::vector<std::string> names{};  ///< of the last arguments of a call

  void take(Expr part) {
    depth = std::max(depth, part.depth + 1);
    parts.push_back(std::move(part));
  }
};

/// What is assigned to.
struct Target {
  Place place{};
  std::vector<Symbol> symbols{};  ///< several: a tuple is taken apart
  bool is_tuple = false;
  std::string field{};  ///< of the namespace that the symbol names
};

struct Statement {
  enum class Kind : std::uint8_t {
    data,        ///< text
    output,      ///< expr
    assign,      ///< target = expr
    capture,     ///< target = what body writes
    branch,      ///< bodies[i] where conditions[i] holds, else the last one
    loop,        ///< bodies[0] for target in expr, where condition holds; bodies[1] if there is nothing
    macro,
    generation,  ///< bodies[0]
    stop,        ///< break
    next,        ///< continue
  };

  Kind kind = Kind::data;
  Place place{};
  int depth = 1;
  std::string text{};
  Expr expr{};
  Expr condition{};
  Target target{};
  std::vector<Expr> conditions{};
  std::vector<std::vector<Statement>> bodies{};
  std::uint32_t macro = 0;  ///< its place in the tree's table

  void take(std::vector<Statement> body) {
    for (const Statement& statement : body) depth = std::max(depth, statement.depth + 1);
    bodies.push_back(std::move(body));
  }
};

struct Macro {
  std::string name;
  std::vector<Symbol> parameters{};
  std::vector<Expr> defaults{};  ///< of the last parameters
  std::vector<Statement> body{};
};

struct Tree {
  std::vector<Statement> body{};
  std::vector<std::string> names{};  ///< of symbols
  std::optional<Symbol> loop{};      ///< that of this name, if it is used
  std::vector<std::string> fields{};  ///< that are asked for of a value, by a dot or by a text in brackets
  std::vector<Macro> macros{};
};

}  // namespace lora::jinja
