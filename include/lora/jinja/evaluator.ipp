#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "lora/core/config.hpp"
#include "lora/jinja/day.hpp"
#include "lora/jinja/evaluator.hpp"
#include "lora/jinja/fields.hpp"
#include "lora/jinja/filters.hpp"
#include "lora/jinja/methods.hpp"
#include "lora/jinja/operations.hpp"
#include "lora/jinja/parser.hpp"

namespace lora::jinja {

LORA_INLINE void Evaluator::set(std::string_view name, Value value) {
  const auto found = std::find(tree_.names.begin(), tree_.names.end(), name);
  if (found != tree_.names.end()) root_[static_cast<std::size_t>(found - tree_.names.begin())] = std::move(value);
}

LORA_INLINE std::string Evaluator::run() {
  TextBuilder out(meter_);
  (void)execute(tree_.body, nullptr, out);
  return out.take();
}

LORA_INLINE Evaluator::Flow Evaluator::execute(const std::vector<Statement>& body, Scope* scope, TextBuilder& out) {
  const Level level(meter_);
  for (const Statement& statement : body)
    if (const Flow flow = execute(statement, scope, out); flow != Flow::on) return flow;
  return Flow::on;
}

LORA_INLINE Evaluator::Flow Evaluator::execute(const Statement& statement, Scope* scope, TextBuilder& out) {
  meter_.at(statement.place);
  meter_.step();
  switch (statement.kind) {
    case Statement::Kind::data:
      out.add(statement.text);
      return Flow::on;
    case Statement::Kind::output: {
      const Value value = evaluate(statement.expr, scope);
      meter_.at(statement.place);
      write(meter_, out, value);
      return Flow::on;
    }
    case Statement::Kind::assign:
      assign(statement.target, evaluate(statement.expr, scope), scope);
      return Flow::on;
    case Statement::Kind::capture:
      capture(statement, scope);
      return Flow::on;
    case Statement::Kind::branch:
      return branch(statement, scope, out);
    case Statement::Kind::loop:
      return loop(statement, scope, out);
    case Statement::Kind::macro:
      assign(statement.target, Value::of(std::make_shared<Function>(Function{Function::Kind::macro, statement.macro})),
             scope);
      return Flow::on;
    case Statement::Kind::generation: {
      Scope inner{scope};
      return execute(statement.bodies[0], &inner, out);
    }
    case Statement::Kind::stop:
      return Flow::stop;
    case Statement::Kind::next:
      return Flow::next;
  }
  return Flow::on;
}

LORA_INLINE Evaluator::Flow Evaluator::branch(const Statement& statement, Scope* scope, TextBuilder& out) {
  for (std::size_t i = 0; i < statement.conditions.size(); ++i)
    if (truth(evaluate(statement.conditions[i], scope))) return execute(statement.bodies[i], scope, out);
  const bool otherwise = statement.bodies.size() > statement.conditions.size();
  return otherwise ? execute(statement.bodies.back(), scope, out) : Flow::on;
}

LORA_INLINE Evaluator::Flow Evaluator::loop(const Statement& statement, Scope* scope, TextBuilder& out) {
  const Value values = evaluate(statement.expr, scope);
  meter_.at(statement.place);
  std::function<bool(const Value&)> passes;
  if (statement.condition.kind != Expr::Kind::nothing)
    passes = [&](const Value& item) {
      Scope own{scope};
      assign(statement.target, item, &own);
      return truth(evaluate(statement.condition, &own));
    };
  const auto items = std::make_shared<Loop>(iterable(meter_, values), std::move(passes));
  bool any = false;
  while (items->next()) {
    any = true;
    Scope inner{scope};
    if (tree_.loop) inner.names.emplace_back(*tree_.loop, Value::of(items));
    meter_.at(statement.place);
    assign(statement.target, items->current(), &inner);
    if (execute(statement.bodies[0], &inner, out) == Flow::stop) break;
  }
  if (any || statement.bodies.size() < 2) return Flow::on;
  Scope inner{scope};
  return execute(statement.bodies[1], &inner, out);
}

LORA_INLINE std::string Evaluator::apart(const std::vector<Statement>& body, Scope& scope) {
  TextBuilder out(meter_);
  (void)execute(body, &scope, out);
  return out.take();
}

LORA_INLINE void Evaluator::capture(const Statement& statement, Scope* scope) {
  Scope inner{scope};
  assign(statement.target, Value::of(&meter_, apart(statement.bodies[0], inner)), scope);
}

LORA_INLINE void Evaluator::assign(Symbol symbol, Value value, Scope* scope) {
  if (scope == nullptr) {
    root_[symbol] = std::move(value);
    return;
  }
  meter_.step(scope->names.size() / 8);
  for (auto& [name, known] : scope->names)
    if (name == symbol) {
      known = std::move(value);
      return;
    }
  scope->names.emplace_back(symbol, std::move(value));
}

LORA_INLINE void Evaluator::assign(const Target& target, Value value, Scope* scope) {
  if (!target.field.empty()) {
    const Value space = look_up(target.symbols[0], scope);
    meter_.at(target.place);
    if (!space.is(Value::Kind::space))
      meter_.fail("a field can be set of a namespace alone, not of ", kind_name(space));
    detail::expect_plain(meter_, value);
    auto& fields = space.space().fields;
    const auto found =
        std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.first == target.field; });
    if (found != fields.end()) {
      found->second = std::move(value);
    } else {
      meter_.take(sizeof(fields[0]) + target.field.size());
      fields.emplace_back(target.field, std::move(value));
    }
    return;
  }
  if (!target.is_tuple) return assign(target.symbols[0], std::move(value), scope);
  meter_.at(target.place);
  const Value items = iterable(meter_, value);
  if (items.sequence().items.size() != target.symbols.size())
    meter_.fail("there are ", items.sequence().items.size(), " values for ", target.symbols.size(), " names");
  for (std::size_t i = 0; i < target.symbols.size(); ++i) assign(target.symbols[i], items.sequence().items[i], scope);
}

LORA_INLINE Value Evaluator::look_up(Symbol symbol, const Scope* scope) const {
  for (; scope != nullptr; scope = scope->outer) {
    meter_.step(scope->names.size() / 8);
    for (const auto& [name, value] : scope->names)
      if (name == symbol) return value.is_absent() ? Value() : value;  // a macro's argument that has no value yet
  }
  if (!root_[symbol].is_absent()) return root_[symbol];
  const auto global = global_named(tree_.names[symbol]);
  return global ? Value::of(std::make_shared<Function>(Function{Function::Kind::global, *global})) : Value();
}

LORA_INLINE Value Evaluator::evaluate(const Expr& expr, Scope* scope) {
  const Level level(meter_);
  meter_.step();
  switch (expr.kind) {
    case Expr::Kind::constant:
      return expr.value;
    case Expr::Kind::name:
      return look_up(expr.symbol, scope);
    case Expr::Kind::list:
      return evaluate_parts(expr, scope, Sequence::Form::list);
    case Expr::Kind::tuple:
      return evaluate_parts(expr, scope, Sequence::Form::tuple);
    case Expr::Kind::dict:
      return evaluate_dict(expr, scope);
    case Expr::Kind::slice:
      return evaluate_slice(expr, scope);
    case Expr::Kind::attribute: {
      const Value object = evaluate(expr.parts[0], scope);
      meter_.at(expr.place);
      return attribute(meter_, object, expr.value.text());
    }
    case Expr::Kind::call:
      return evaluate_call(expr, scope);
    case Expr::Kind::filter:
    case Expr::Kind::test:
      return evaluate_function(expr, scope);
    case Expr::Kind::compare:
      return evaluate_compare(expr, scope);
    case Expr::Kind::all:
    case Expr::Kind::any:
      return evaluate_logic(expr, scope);
    case Expr::Kind::choice:
      return evaluate_choice(expr, scope);
    case Expr::Kind::join:
      return evaluate_join(expr, scope);
    case Expr::Kind::nothing:
      return Value::absent();
    default:
      return evaluate_binary(expr, scope);
  }
}

LORA_INLINE Value Evaluator::evaluate_parts(const Expr& expr, Scope* scope, Sequence::Form form) {
  std::vector<Value> items;
  items.reserve(expr.parts.size());
  for (const Expr& part : expr.parts) items.push_back(evaluate(part, scope));
  meter_.at(expr.place);
  return make_sequence(meter_, form, std::move(items));
}

LORA_INLINE Value Evaluator::evaluate_dict(const Expr& expr, Scope* scope) {
  std::vector<Dict::Entry> entries;
  for (std::size_t i = 0; i < expr.parts.size(); i += 2) {
    Value key = evaluate(expr.parts[i], scope), value = evaluate(expr.parts[i + 1], scope);
    meter_.at(expr.parts[i].place);
    const Dict known(nullptr, entries);
    if (const Value* same = find(meter_, known, key)) {
      entries[static_cast<std::size_t>(std::find_if(known.entries.begin(), known.entries.end(),
                                                    [&](const Dict::Entry& entry) { return &entry.second == same; }) -
                                       known.entries.begin())]
          .second = std::move(value);
    } else {
      entries.emplace_back(std::move(key), std::move(value));
    }
  }
  return make_dict(meter_, std::move(entries));
}

LORA_INLINE Value Evaluator::evaluate_slice(const Expr& expr, Scope* scope) {
  const Value object = evaluate(expr.parts[0], scope);
  std::array<Value, 3> bounds;
  for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] = evaluate(expr.parts[i + 1], scope);
  meter_.at(expr.place);
  return slice(meter_, object, bounds[0], bounds[1], bounds[2]);
}

LORA_INLINE Value Evaluator::evaluate_compare(const Expr& expr, Scope* scope) {
  Value left = evaluate(expr.parts[0], scope);
  for (std::size_t i = 0; i < expr.operations.size(); ++i) {
    Value right = evaluate(expr.parts[i + 1], scope);
    meter_.at(expr.place);
    if (!holds(meter_, expr.operations[i], left, right)) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

LORA_INLINE Value Evaluator::evaluate_logic(const Expr& expr, Scope* scope) {
  Value value;
  for (const Expr& part : expr.parts) {
    value = evaluate(part, scope);
    if (truth(value) == (expr.kind == Expr::Kind::any)) return value;
  }
  return value;
}

LORA_INLINE Value Evaluator::evaluate_choice(const Expr& expr, Scope* scope) {
  if (truth(evaluate(expr.parts[1], scope))) return evaluate(expr.parts[0], scope);
  return expr.parts[2].kind == Expr::Kind::nothing ? Value() : evaluate(expr.parts[2], scope);
}

LORA_INLINE Value Evaluator::evaluate_join(const Expr& expr, Scope* scope) {
  TextBuilder out(meter_);
  for (const Expr& part : expr.parts) {
    const Value value = evaluate(part, scope);
    meter_.at(expr.place);
    write(meter_, out, value);
  }
  return out.value();
}

LORA_INLINE Value Evaluator::evaluate_binary(const Expr& expr, Scope* scope) {
  const Value left = evaluate(expr.parts[0], scope);
  if (expr.kind == Expr::Kind::negation) return Value::of(!truth(left));
  if (expr.kind == Expr::Kind::negative || expr.kind == Expr::Kind::positive) {
    meter_.at(expr.place);
    const Value minus = negative(meter_, left);
    return expr.kind == Expr::Kind::negative ? minus : negative(meter_, minus);
  }
  const Value right = evaluate(expr.parts[1], scope);
  meter_.at(expr.place);
  return expr.kind == Expr::Kind::item ? item(meter_, left, right) : arithmetic(meter_, expr.operation, left, right);
}

LORA_INLINE Value Evaluator::evaluate_function(const Expr& expr, Scope* scope) {
  const Value subject = evaluate(expr.parts[0], scope);
  std::vector<Value> arguments;
  arguments.reserve(expr.parts.size() - 1);
  for (std::size_t i = 1; i < expr.parts.size(); ++i) arguments.push_back(evaluate(expr.parts[i], scope));
  meter_.at(expr.place);
  return expr.kind == Expr::Kind::filter ? apply_filter(meter_, expr.function, subject, arguments)
                                         : Value::of(apply_test(meter_, expr.function, subject, arguments));
}

LORA_INLINE Value Evaluator::evaluate_call(const Expr& expr, Scope* scope) {
  const Value callee = evaluate(expr.parts[0], scope);
  std::vector<Value> arguments;
  arguments.reserve(expr.parts.size() - 1);
  for (std::size_t i = 1; i < expr.parts.size(); ++i) arguments.push_back(evaluate(expr.parts[i], scope));
  meter_.at(expr.place);
  if (!callee.is(Value::Kind::function)) meter_.fail(kind_name(callee), " can't be called");
  const Function& function = callee.function();
  switch (function.kind) {
    case Function::Kind::macro:
      return call_macro(tree_.macros[function.number], std::move(arguments), expr.names);
    case Function::Kind::global:
      return call_global(function.number, std::move(arguments), expr.names);
    case Function::Kind::method:
      break;
  }
  return call_method(meter_, function, std::move(arguments), expr.names);
}

LORA_INLINE Value Evaluator::call_macro(const Macro& macro, std::vector<Value> arguments,
                                        std::span<const std::string> names) {
  const std::size_t positional = arguments.size() - names.size();
  const auto fail = [&](const auto&... parts) { meter_.fail("the macro ", std::string_view(macro.name), parts...); };
  if (positional > macro.parameters.size()) fail(" takes at most ", macro.parameters.size(), " arguments");
  Scope own;
  for (const Symbol parameter : macro.parameters) own.names.emplace_back(parameter, Value::absent());
  for (std::size_t i = 0; i < positional; ++i) own.names[i].second = std::move(arguments[i]);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = std::find_if(own.names.begin(), own.names.end(),
                                    [&](const auto& name) { return tree_.names[name.first] == names[i]; });
    if (found == own.names.end()) fail(" takes no argument ", std::string_view(names[i]));
    if (!found->second.is_absent()) fail(" takes its argument ", std::string_view(names[i]), " once");
    found->second = std::move(arguments[positional + i]);
  }
  const std::size_t first_default = macro.parameters.size() - macro.defaults.size();
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    if (!own.names[i].second.is_absent()) continue;
    own.names[i].second = i < first_default ? Value() : evaluate(macro.defaults[i - first_default], &own);
  }
  return Value::of(&meter_, apart(macro.body, own));
}

LORA_INLINE Value Evaluator::call_global(std::uint32_t global, std::vector<Value> arguments,
                                         std::span<const std::string> names) {
  const auto which = static_cast<Global>(global);
  if (which == Global::dict) return make_mapping(std::move(arguments), names, "dict");
  if (which == Global::name_space) return make_space(std::move(arguments), names);
  const std::vector<Value> given = arranged(meter_, global_signature(global), std::move(arguments), names);
  if (which == Global::range) return make_range(given);
  if (which == Global::strftime_now) return formatted_day(given[0]);
  const Value message = as_text(meter_, given[0]);
  meter_.fail("the template refuses this: ", std::string_view(message.text()));
}

LORA_INLINE Value Evaluator::make_mapping(std::vector<Value> arguments, std::span<const std::string> names,
                                          std::string_view what) {
  const std::size_t positional = arguments.size() - names.size();
  if (positional > 1) meter_.fail(what, " takes one mapping, and values by names");
  std::vector<Dict::Entry> entries;
  if (positional == 1) {
    if (!arguments[0].is(Value::Kind::dict)) meter_.fail(what, " of ", kind_name(arguments[0]), "; expected a mapping");
    entries = arguments[0].dict().entries;
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = std::find_if(entries.begin(), entries.end(), [&](const Dict::Entry& entry) {
      return entry.first.is_text() && entry.first.text() == names[i];
    });
    if (found != entries.end()) {
      found->second = std::move(arguments[positional + i]);
    } else {
      entries.emplace_back(Value::of(&meter_, names[i]), std::move(arguments[positional + i]));
    }
  }
  return make_dict(meter_, std::move(entries));
}

LORA_INLINE Value Evaluator::make_space(std::vector<Value> arguments, std::span<const std::string> names) {
  const Value fields = make_mapping(std::move(arguments), names, "namespace");
  auto space = std::make_shared<Space>();
  for (const auto& [key, value] : fields.dict().entries) {
    if (!key.is_text() || key.text().starts_with('_'))
      meter_.fail("the fields of a namespace are names that begin with no _");
    meter_.take(sizeof(space->fields[0]) + key.text().size());
    space->fields.emplace_back(key.text(), value);
  }
  return Value::of(std::move(space));
}

LORA_INLINE Value Evaluator::make_range(const std::vector<Value>& bounds) {
  constexpr std::int64_t longest = 100'000;  // as in Jinja's sandbox
  const auto whole = [&](std::size_t i, std::int64_t otherwise) {
    return whole_argument(meter_, bounds[i], "range", otherwise);
  };
  const bool one = bounds[1].is_absent();
  const std::int64_t begin = one ? 0 : whole(0, 0), end = one ? whole(0, 0) : whole(1, 0), step = whole(2, 1);
  if (step == 0) meter_.fail("the step of a range is 0");
  std::vector<Value> items;
  for (std::int64_t at = begin; step < 0 ? at > end : at < end;) {
    if (std::ssize(items) == longest) meter_.fail("a range has more than ", longest, " numbers");
    items.push_back(Value::of(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return make_sequence(meter_, Sequence::Form::range, std::move(items));
}

LORA_INLINE Value Evaluator::formatted_day(const Value& format) {
  if (!format.is_text()) meter_.fail("strftime_now of ", kind_name(format), "; expected a text");
  std::string problem;
  auto text = format_day(day_, format.text(), problem);
  if (!text) meter_.fail(std::string_view(problem));
  return TextBuilder(meter_).add(*text).value();
}

}  // namespace lora::jinja
