#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/jinja/filters.hpp"
#include "lora/jinja/lexer.hpp"
#include "lora/jinja/methods.hpp"
#include "lora/jinja/parser.hpp"

namespace lora::jinja::detail {

constexpr Signature global_table[] = {
    {"dict", "*"},
    {"namespace", "*"},
    {"raise_exception", "message", 1},
    {"range", ".start .stop .step", 1},
    {"strftime_now", "format", 1},
};

/// Follows jinja2/parser.py.
class Parser {
 public:
  Parser(std::string_view text, const std::string& name) : tokens_(tokens_of(text, name)), name_(name) {}

  Tree run() {
    tree_.body = statements({});
    if (const auto loop = symbols_.find("loop"); loop != symbols_.end()) tree_.loop = loop->second;
    return std::move(tree_);
  }

 private:
  using Kind = Token::Kind;
  using Body = std::vector<Statement>;

  const Token& here() const { return tokens_[at_]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }

  template <class... Parts>
  [[noreturn]] void fail(Place place, const Parts&... parts) const {
    fail_at(name_, place, parts...);
  }

  /// What stands here, for an error.
  std::string found() const {
    switch (here().kind) {
      case Kind::data:
        return "text";
      case Kind::output_begin:
        return "{{";
      case Kind::output_end:
        return "}}";
      case Kind::block_begin:
        return "{%";
      case Kind::block_end:
        return "%}";
      case Kind::text:
        return "a text";
      case Kind::end:
        return "the end of the template";
      default:
        return here().text;
    }
  }
  [[noreturn]] void fail_found(std::string_view expected) const {
    fail(here().place, "found ", found(), "; expected ", expected);
  }

  bool is_sign(std::string_view sign) const { return here().kind == Kind::sign && here().text == sign; }
  bool is_name(std::string_view name) const { return here().kind == Kind::name && here().text == name; }
  bool take_sign(std::string_view sign) { return is_sign(sign) && (next(), true); }
  bool take_name(std::string_view name) { return is_name(name) && (next(), true); }
  void expect_sign(std::string_view sign) {
    if (!take_sign(sign)) fail_found(sign);
  }
  void expect_end() {
    if (here().kind != Kind::block_end) fail_found("%}");
    next();
  }

  static bool is_word(std::string_view name) {
    constexpr std::array<std::string_view, 7> words = {"and", "or", "not", "in", "is", "if", "else"};
    return std::find(words.begin(), words.end(), name) != words.end();
  }

  const Token& expect_name(std::string_view what) {
    if (here().kind != Kind::name || is_word(here().text)) fail_found(what);
    return next();
  }

  Symbol symbol(std::string_view name) {
    const auto [found, is_new] = symbols_.try_emplace(std::string(name), static_cast<Symbol>(tree_.names.size()));
    if (is_new) tree_.names.emplace_back(name);
    return found->second;
  }

  void note_field(const std::string& name) {
    if (fields_.insert(name).second) tree_.fields.push_back(name);
  }

  /// Nothing is nested deeper than this while it is read: neither this reader nor what goes through the tree overflows.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.level_ > most_template_depth)
        parser_.fail(parser_.here().place, "nested deeper than ", most_template_depth, " levels");
    }
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  Expr made(Expr::Kind kind, Place place) const {
    Expr expr;
    expr.kind = kind;
    expr.place = place;
    return expr;
  }
  Expr checked(Expr expr) const {
    if (expr.depth > most_template_depth) fail(expr.place, "nested deeper than ", most_template_depth, " levels");
    return expr;
  }
  Expr constant(Place place, Value value) const {
    Expr expr = made(Expr::Kind::constant, place);
    expr.value = std::move(value);
    return expr;
  }
  Expr joined(Expr::Kind kind, Expr first, Place place, Operator operation = Operator::none) const {
    Expr expr = made(kind, place);
    expr.operation = operation;
    expr.take(std::move(first));
    return expr;
  }

  // Statements

  /// Up to a block that begins with one of these names, which is here then.
  Body statements(std::initializer_list<std::string_view> ends) {
    const Level level(*this);
    Body body;
    while (true) {
      const Place place = here().place;
      switch (here().kind) {
        case Kind::end:
          if (ends.size() > 0) fail_found(concat("the block ", *(ends.end() - 1)));
          return body;
        case Kind::data: {
          Statement data;
          data.place = place;
          data.text = next().text;
          body.push_back(std::move(data));
          break;
        }
        case Kind::output_begin: {
          next();
          Statement output;
          output.kind = Statement::Kind::output;
          output.place = place;
          output.expr = tuple(true, "");
          if (here().kind != Kind::output_end) fail_found("}}");
          next();
          body.push_back(std::move(output));
          break;
        }
        default:
          next();  // {%
          if (here().kind != Kind::name) fail_found("the name of a block");
          if (std::find(ends.begin(), ends.end(), here().text) != ends.end()) return body;
          body.push_back(statement());
          if (body.back().depth > most_template_depth)
            fail(place, "nested deeper than ", most_template_depth, " levels");
      }
    }
  }

  Statement statement() {
    const Token& token = next();
    const std::string& name = token.text;
    Statement made;
    made.place = token.place;
    if (name == "set") return set(std::move(made));
    if (name == "if") return branch(std::move(made));
    if (name == "for") return loop(std::move(made));
    if (name == "macro") return macro(std::move(made));
    if (name == "generation") {
      made.kind = Statement::Kind::generation;
      expect_end();
      made.take(apart("endgeneration"));
      return made;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail(token.place, "found ", std::string_view(name), " outside of a loop");
      made.kind = name == "break" ? Statement::Kind::stop : Statement::Kind::next;
      expect_end();
      return made;
    }
    fail(token.place, "found the block ", std::string_view(name),
         "; supported are set, if, for, macro, generation, break, continue and raw");
  }

  /// A body that no loop around it can be left from.
  Body apart(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    ++inner_;
    Body body = statements({end});
    next();
    expect_end();
    --inner_;
    loops_ = loops;
    return body;
  }

  Symbol assigned(const Token& token) {
    if (token.text == "loop" || token.text == "true" || token.text == "false" || token.text == "none" ||
        token.text == "True" || token.text == "False" || token.text == "None")
      fail(token.place, std::string_view(token.text), " can't be assigned to");
    return symbol(token.text);
  }

  Target target(bool with_field) {
    Target made;
    made.place = here().place;
    const bool brackets = take_sign("(");
    do {
      if (!made.symbols.empty() && here().kind != Kind::name) break;  // a comma at the end
      made.symbols.push_back(assigned(expect_name("a name to assign to")));
      if (with_field && !brackets && made.symbols.size() == 1 && take_sign(".")) {
        made.field = expect_name("the name of a namespace's field").text;
        if (made.field.starts_with('_'))
          fail(made.place, "the field ", std::string_view(made.field), "; those of a namespace begin with no _");
        return made;
      }
      if (is_name("in")) break;
    } while (take_sign(",") && (made.is_tuple = true));
    if (brackets) {
      expect_sign(")");
      if (!made.is_tuple && is_sign(",")) fail_found("one tuple");
    }
    return made;
  }

  Statement set(Statement made) {
    made.target = target(true);
    if (take_sign("=")) {
      made.kind = Statement::Kind::assign;
      made.expr = tuple(true, "");
      expect_end();
      return made;
    }
    if (here().kind != Kind::block_end) fail_found("= or %}");
    if (made.target.is_tuple) fail_found("=");
    next();
    made.kind = Statement::Kind::capture;
    ++inner_;
    made.take(statements({"endset"}));
    --inner_;
    next();
    expect_end();
    return made;
  }

  Statement branch(Statement made) {
    made.kind = Statement::Kind::branch;
    while (true) {
      made.conditions.push_back(any());
      made.depth = std::max(made.depth, made.conditions.back().depth + 1);
      expect_end();
      made.take(statements({"elif", "else", "endif"}));
      if (take_name("elif")) continue;
      if (take_name("else")) {
        expect_end();
        made.take(statements({"endif"}));
      }
      next();
      expect_end();
      return made;
    }
  }

  Statement loop(Statement made) {
    made.kind = Statement::Kind::loop;
    made.target = target(false);
    if (!take_name("in")) fail_found("in");
    made.expr = tuple(false, "recursive");
    if (take_name("if")) made.condition = expression();
    if (is_name("recursive")) fail(here().place, "recursive loops are not supported");
    expect_end();
    ++loops_;
    ++inner_;
    made.take(statements({"else", "endfor"}));
    --loops_;
    if (take_name("else")) {
      expect_end();
      made.take(statements({"endfor"}));
    }
    --inner_;
    next();
    expect_end();
    return made;
  }

  Statement macro(Statement made) {
    if (inner_ > 0) fail(made.place, "a macro inside of a loop or another block but if is not supported");
    made.kind = Statement::Kind::macro;
    Macro macro;
    const Token& name = expect_name("the name of a macro");
    macro.name = name.text;
    made.target.symbols.push_back(assigned(name));
    expect_sign("(");
    while (!take_sign(")")) {
      if (!macro.parameters.empty()) {
        expect_sign(",");
        if (take_sign(")")) break;
      }
      const Token& parameter = expect_name("the name of a parameter");
      const Symbol own = assigned(parameter);
      if (std::find(macro.parameters.begin(), macro.parameters.end(), own) != macro.parameters.end())
        fail(parameter.place, "the parameter ", std::string_view(parameter.text), " is there twice");
      macro.parameters.push_back(own);
      if (take_sign("=")) {
        macro.defaults.push_back(expression());
      } else if (!macro.defaults.empty()) {
        fail(parameter.place, "the parameter ", std::string_view(parameter.text),
             " has no default, but one before it has");
      }
    }
    expect_end();
    in_macro_ = true;
    macro.body = apart("endmacro");
    in_macro_ = false;
    for (const Statement& statement : macro.body) made.depth = std::max(made.depth, statement.depth + 1);
    made.macro = static_cast<std::uint32_t>(tree_.macros.size());
    tree_.macros.push_back(std::move(macro));
    return made;
  }

  // Expressions

  /// One expression, or several as a tuple. `end`: a name that ends it.
  Expr tuple(bool with_choice, std::string_view end) {
    const Level level(*this);
    const Place place = here().place;
    Expr first = with_choice ? expression() : any();
    if (!is_sign(",")) return first;
    Expr tuple = joined(Expr::Kind::tuple, std::move(first), place);
    while (take_sign(",")) {
      const bool over = here().kind == Kind::output_end || here().kind == Kind::block_end || is_sign(")") ||
                        (!end.empty() && is_name(end));
      if (over) break;
      tuple.take(with_choice ? expression() : any());
    }
    return checked(std::move(tuple));
  }

  Expr expression() {
    const Level level(*this);
    Expr value = any();
    while (is_name("if")) {
      const Place place = next().place;
      Expr choice = joined(Expr::Kind::choice, std::move(value), place);
      choice.take(any());
      choice.take(take_name("else") ? expression() : made(Expr::Kind::nothing, here().place));
      value = checked(std::move(choice));
    }
    return value;
  }

  Expr any() {
    Expr left = all();
    if (!is_name("or")) return left;
    Expr any = joined(Expr::Kind::any, std::move(left), here().place);
    while (take_name("or")) any.take(all());
    return checked(std::move(any));
  }

  Expr all() {
    Expr left = negation();
    if (!is_name("and")) return left;
    Expr all = joined(Expr::Kind::all, std::move(left), here().place);
    while (take_name("and")) all.take(negation());
    return checked(std::move(all));
  }

  Expr negation() {
    const Level level(*this);
    const Place place = here().place;
    if (!take_name("not")) return comparison();
    return checked(joined(Expr::Kind::negation, negation(), place));
  }

  Operator take_comparison() {
    constexpr std::pair<std::string_view, Operator> signs[] = {
        {"==", Operator::equal}, {"!=", Operator::unequal},       {"<=", Operator::less_equal},
        {"<", Operator::less},   {">=", Operator::greater_equal}, {">", Operator::greater}};
    for (const auto& entry : signs)
      if (take_sign(entry.first)) return entry.second;
    if (take_name("in")) return Operator::in;
    if (is_name("not") && tokens_[at_ + 1].kind == Kind::name && tokens_[at_ + 1].text == "in") {
      next();
      next();
      return Operator::not_in;
    }
    return Operator::none;
  }

  Expr comparison() {
    Expr left = sum();
    const Place place = here().place;
    Operator operation = take_comparison();
    if (operation == Operator::none) return left;
    Expr compare = joined(Expr::Kind::compare, std::move(left), place);
    for (; operation != Operator::none; operation = take_comparison()) {
      compare.operations.push_back(operation);
      compare.take(sum());
    }
    return checked(std::move(compare));
  }

  Expr binary(Expr left, Operator operation, Place place, Expr right) const {
    Expr expr = joined(Expr::Kind::binary, std::move(left), place, operation);
    expr.take(std::move(right));
    return checked(std::move(expr));
  }

  Expr sum() {
    Expr left = concatenation();
    while (true) {
      const Place place = here().place;
      if (take_sign("+")) {
        left = binary(std::move(left), Operator::add, place, concatenation());
      } else if (take_sign("-")) {
        left = binary(std::move(left), Operator::subtract, place, concatenation());
      } else {
        return left;
      }
    }
  }

  Expr concatenation() {
    Expr left = product();
    if (!is_sign("~")) return left;
    Expr join = joined(Expr::Kind::join, std::move(left), here().place);
    while (take_sign("~")) join.take(product());
    return checked(std::move(join));
  }

  Expr product() {
    Expr left = power();
    while (true) {
      const Place place = here().place;
      const Operator operation = take_sign("*")    ? Operator::multiply
                                 : take_sign("/")  ? Operator::divide
                                 : take_sign("//") ? Operator::divide_whole
                                 : take_sign("%")  ? Operator::modulo
                                                   : Operator::none;
      if (operation == Operator::none) return left;
      left = binary(std::move(left), operation, place, power());
    }
  }

  Expr power() {
    Expr left = unary(true);
    while (true) {
      const Place place = here().place;
      if (!take_sign("**")) return left;
      left = binary(std::move(left), Operator::power, place, unary(true));
    }
  }

  Expr unary(bool with_filters) {
    const Level level(*this);
    const Place place = here().place;
    Expr expr = take_sign("-")   ? checked(joined(Expr::Kind::negative, unary(false), place))
                : take_sign("+") ? checked(joined(Expr::Kind::positive, unary(false), place))
                                 : primary();
    expr = postfix(std::move(expr));
    return with_filters ? filtered(std::move(expr)) : expr;
  }

  Expr primary() {
    const Level level(*this);
    const Token& token = here();
    const Place place = token.place;
    switch (token.kind) {
      case Kind::name:
        return named();
      case Kind::text: {
        std::string text;
        while (here().kind == Kind::text) text += next().text;
        return constant(place, Value::of(nullptr, std::move(text)));
      }
      case Kind::whole:
        return constant(place, Value::of(next().whole));
      case Kind::real:
        return constant(place, Value::of(next().real));
      default:
        break;
    }
    if (take_sign("(")) {
      if (take_sign(")")) return made(Expr::Kind::tuple, place);
      Expr inside = tuple(true, "");
      expect_sign(")");
      return inside;
    }
    if (take_sign("[")) {
      Expr list = made(Expr::Kind::list, place);
      while (!take_sign("]")) {
        if (!list.parts.empty()) {
          expect_sign(",");
          if (take_sign("]")) break;
        }
        list.take(expression());
      }
      return checked(std::move(list));
    }
    if (take_sign("{")) {
      Expr dict = made(Expr::Kind::dict, place);
      while (!take_sign("}")) {
        if (!dict.parts.empty()) {
          expect_sign(",");
          if (take_sign("}")) break;
        }
        dict.take(expression());
        expect_sign(":");
        dict.take(expression());
      }
      return checked(std::move(dict));
    }
    fail_found("an expression");
  }

  Expr named() {
    const Token& token = expect_name("an expression");
    const std::string& name = token.text;
    if (name == "true" || name == "True") return constant(token.place, Value::of(true));
    if (name == "false" || name == "False") return constant(token.place, Value::of(false));
    if (name == "none" || name == "None") return constant(token.place, Value::none());
    for (const std::string_view other : {"self", "super", "cycler", "joiner", "lipsum"})
      if (name == other) fail(token.place, other, " is not supported");
    if (in_macro_)
      for (const std::string_view other : {"varargs", "kwargs", "caller"})
        if (name == other) fail(token.place, other, " in a macro is not supported");
    Expr expr = made(Expr::Kind::name, token.place);
    expr.symbol = symbol(name);
    return expr;
  }

  Expr postfix(Expr expr) {
    while (true) {
      const Place place = here().place;
      if (take_sign(".")) {
        if (here().kind == Kind::whole) {
          Expr item = joined(Expr::Kind::item, std::move(expr), place);
          item.take(constant(here().place, Value::of(here().whole)));
          next();
          expr = checked(std::move(item));
          continue;
        }
        if (here().kind != Kind::name) fail_found("a name");
        Expr attribute = joined(Expr::Kind::attribute, std::move(expr), here().place);
        note_field(here().text);
        attribute.value = Value::of(nullptr, next().text);
        expr = checked(std::move(attribute));
      } else if (take_sign("[")) {
        expr = subscript(std::move(expr), place);
      } else if (is_sign("(")) {
        expr = call(std::move(expr));
      } else {
        return expr;
      }
    }
  }

  Expr subscript(Expr object, Place place) {
    const auto bound = [&] {
      const bool left_out = is_sign(":") || is_sign("]");
      return left_out ? made(Expr::Kind::nothing, here().place) : expression();
    };
    Expr from = bound();
    if (from.kind != Expr::Kind::nothing && take_sign("]")) {
      if (from.kind == Expr::Kind::constant && from.value.is_text()) note_field(from.value.text());
      Expr item = joined(Expr::Kind::item, std::move(object), place);
      item.take(std::move(from));
      return checked(std::move(item));
    }
    expect_sign(":");
    Expr slice = joined(Expr::Kind::slice, std::move(object), place);
    slice.take(std::move(from));
    slice.take(bound());
    slice.take(take_sign(":") ? bound() : made(Expr::Kind::nothing, here().place));
    expect_sign("]");
    return checked(std::move(slice));
  }

  /// The arguments of a call, behind its (.
  void arguments(Expr& call) {
    const Level level(*this);
    expect_sign("(");
    bool first = true;
    while (!take_sign(")")) {
      if (!first) {
        expect_sign(",");
        if (take_sign(")")) return;
      }
      first = false;
      const bool by_name =
          here().kind == Kind::name && tokens_[at_ + 1].kind == Kind::sign && tokens_[at_ + 1].text == "=";
      if (by_name) {
        call.names.push_back(next().text);
        next();
      } else if (!call.names.empty()) {
        fail_found("an argument with its name");
      }
      call.take(expression());
    }
  }

  Expr call(Expr callee) {
    const Place place = callee.place;
    const bool method = callee.kind == Expr::Kind::attribute;
    if (method && !is_method(callee.value.text()))
      fail(place, "the method ", std::string_view(callee.value.text()), " is not supported");
    Expr call = joined(Expr::Kind::call, std::move(callee), place);
    arguments(call);
    return checked(std::move(call));
  }

  Expr filtered(Expr expr) {
    while (true) {
      if (take_sign("|")) {
        expr = filter(std::move(expr));
      } else if (take_name("is")) {
        expr = test(std::move(expr));
      } else if (is_sign("(")) {
        expr = call(std::move(expr));
      } else {
        return expr;
      }
    }
  }

  /// Puts the arguments in the order of the signature.
  void arrange(Expr& expr, const Signature& signature) const {
    std::string problem;
    const auto places = places_of(signature, expr.parts.size() - 1, expr.names, problem);
    if (!places) fail(expr.place, std::string_view(problem));
    std::vector<Expr> in_order(1 + std::max(signature.list().size(), places->size()));
    in_order[0] = std::move(expr.parts[0]);
    for (std::size_t i = 0; i < places->size(); ++i) in_order[1 + (*places)[i]] = std::move(expr.parts[1 + i]);
    expr.parts = std::move(in_order);
    expr.names.clear();
  }

  Expr filter(Expr subject) {
    const Token& name = expect_name("the name of a filter");
    const auto known = filter_named(name.text);
    if (!known) fail(name.place, "the filter ", std::string_view(name.text), " is not supported");
    Expr filter = joined(Expr::Kind::filter, std::move(subject), name.place);
    filter.function = *known;
    if (is_sign("(")) arguments(filter);
    arrange(filter, filter_signature(*known));
    if (const auto named = names_another(*known)) {
      const Expr& other = filter.parts[1 + named->argument];
      const bool told = other.kind == Expr::Kind::constant && other.value.is_text();
      if (told && !(named->filter ? filter_named(other.value.text()) : test_named(other.value.text())))
        fail(other.place, "the ", named->filter ? "filter " : "test ", std::string_view(other.value.text()),
             " is not supported");
    }
    return checked(std::move(filter));
  }

  Expr test(Expr subject) {
    const Place place = here().place;
    const bool negated = take_name("not");
    if (here().kind != Kind::name) fail_found("the name of a test");
    const Token& name = next();
    const auto known = test_named(name.text);
    if (!known) fail(name.place, "the test ", std::string_view(name.text), " is not supported");
    Expr test = joined(Expr::Kind::test, std::move(subject), name.place);
    test.function = *known;
    const bool argument = here().kind == Kind::text || here().kind == Kind::whole || here().kind == Kind::real ||
                          is_sign("[") || is_sign("{") ||
                          (here().kind == Kind::name && !is_name("else") && !is_name("or") && !is_name("and"));
    if (is_sign("(")) {
      arguments(test);
    } else if (argument) {
      if (is_name("is")) fail_found("one test; several need brackets");
      test.take(postfix(primary()));
    }
    arrange(test, test_signature(*known));
    test = checked(std::move(test));
    return negated ? checked(joined(Expr::Kind::negation, std::move(test), place)) : test;
  }

  std::vector<Token> tokens_;
  const std::string& name_;
  std::size_t at_ = 0;
  int level_ = 0;
  int loops_ = 0;  // around this place, that break leaves
  int inner_ = 0;  // blocks around this place with names of their own
  bool in_macro_ = false;
  Tree tree_;
  std::unordered_map<std::string, Symbol> symbols_;
  std::unordered_set<std::string> fields_;
};

}  // namespace lora::jinja::detail

namespace lora::jinja {

LORA_INLINE Tree parse(std::string_view text, const std::string& name) { return detail::Parser(text, name).run(); }

LORA_INLINE const Signature& global_signature(std::uint32_t global) { return detail::global_table[global]; }

LORA_INLINE std::optional<std::uint32_t> global_named(std::string_view name) {
  for (std::uint32_t i = 0; i < std::size(detail::global_table); ++i)
    if (detail::global_table[i].name == name) return i;
  return std::nullopt;
}

}  // namespace lora::jinja
