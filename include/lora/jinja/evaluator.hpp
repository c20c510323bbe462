#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/jinja/loop.hpp"
#include "lora/jinja/syntax.hpp"
#include "lora/jinja/value.hpp"

namespace lora::jinja {

/// Goes through a syntax tree, once.
class Evaluator {
 public:
  /// All outlive it. `day`: YYYY-MM-DD.
  Evaluator(Meter& meter, const Tree& tree, const std::string& day)
      : meter_(meter), tree_(tree), day_(day), root_(tree.names.size(), Value::absent()) {}

  /// Sets a variable, if the template names it.
  void set(std::string_view name, Value value);

  /// What the template writes.
  std::string run();

 private:
  /// The names of a block of their own. Those of the template itself are root_.
  struct Scope {
    const Scope* outer = nullptr;
    std::vector<std::pair<Symbol, Value>> names{};
  };
  enum class Flow { on, next, stop };

  Flow execute(const std::vector<Statement>& body, Scope* scope, TextBuilder& out);
  Flow execute(const Statement& statement, Scope* scope, TextBuilder& out);
  Flow branch(const Statement& statement, Scope* scope, TextBuilder& out);
  Flow loop(const Statement& statement, Scope* scope, TextBuilder& out);
  void capture(const Statement& statement, Scope* scope);
  std::string apart(const std::vector<Statement>& body, Scope& scope);

  void assign(const Target& target, Value value, Scope* scope);
  void assign(Symbol symbol, Value value, Scope* scope);
  Value look_up(Symbol symbol, const Scope* scope) const;

  Value evaluate(const Expr& expr, Scope* scope);
  Value evaluate_parts(const Expr& expr, Scope* scope, Sequence::Form form);
  Value evaluate_dict(const Expr& expr, Scope* scope);
  Value evaluate_slice(const Expr& expr, Scope* scope);
  Value evaluate_compare(const Expr& expr, Scope* scope);
  Value evaluate_logic(const Expr& expr, Scope* scope);
  Value evaluate_choice(const Expr& expr, Scope* scope);
  Value evaluate_join(const Expr& expr, Scope* scope);
  Value evaluate_binary(const Expr& expr, Scope* scope);
  Value evaluate_function(const Expr& expr, Scope* scope);
  Value evaluate_call(const Expr& expr, Scope* scope);

  Value call_macro(const Macro& macro, std::vector<Value> arguments, std::span<const std::string> names);
  Value call_global(std::uint32_t global, std::vector<Value> arguments, std::span<const std::string> names);
  Value make_mapping(std::vector<Value> arguments, std::span<const std::string> names, std::string_view what);
  Value make_space(std::vector<Value> arguments, std::span<const std::string> names);
  Value make_range(const std::vector<Value>& bounds);
  Value formatted_day(const Value& format);

  Meter& meter_;
  const Tree& tree_;
  const std::string& day_;
  std::vector<Value> root_;
};

}  // namespace lora::jinja

#ifndef LORA_COMPILED
#  include "lora/jinja/evaluator.ipp"
#endif
