#!/usr/bin/env python3
"""Whether headers include what they use of the standard library.

Every name std::... in include/lora comes with an include of its header in the same file, or, for definitions (*.ipp), in
the header that they belong to. cmake/check_compiles.py relies on it: it parses the standard library once for all headers.
Prints a line for each offence and exits 1 if there is one. `--self-test` checks the checker.
"""
import argparse
import pathlib
import re
import sys
import tempfile

from check_floors import includes

# Which headers offer a name; any of them will do.
HEADERS = {
    "any": "any any_cast",
    "algorithm": "all_of any_of none_of find find_if find_if_not count count_if copy copy_if copy_n copy_backward transform "
                 "generate fill fill_n replace remove remove_if unique reverse rotate shuffle sort stable_sort partial_sort "
                 "nth_element lower_bound upper_bound equal_range binary_search merge min max minmax clamp min_element "
                 "max_element minmax_element equal mismatch search lexicographical_compare is_sorted partition for_each "
                 "push_heap pop_heap make_heap sort_heap adjacent_find includes set_difference next_permutation",
    "array": "array",
    "atomic": "atomic atomic_ref atomic_flag memory_order_relaxed memory_order_acquire memory_order_release",
    "bit": "bit_cast bit_ceil bit_width bit_floor countr_zero countl_zero popcount endian has_single_bit rotl rotr",
    "charconv": "from_chars to_chars chars_format from_chars_result to_chars_result",
    "chrono": "chrono",
    "cctype": "isdigit isalnum isalpha isspace isupper islower isprint tolower toupper",
    "cmath": "sqrt exp exp2 expm1 log log2 log10 log1p pow sin cos tan tanh atan atan2 floor ceil round lround llround trunc "
             "rint nearbyint fabs fma isnan isinf isfinite ldexp frexp scalbn nextafter hypot erf signbit copysign fmod cbrt",
    "compare": "strong_ordering weak_ordering partial_ordering",
    "complex": "complex real imag",
    "concepts": "same_as convertible_to derived_from integral floating_point signed_integral unsigned_integral "
                "constructible_from invocable default_initializable copyable movable regular predicate copy_constructible",
    "condition_variable": "condition_variable",
    "csignal": "signal raise sig_atomic_t",
    "cstdio": "FILE fopen fclose fputs fputc fwrite fread fflush fprintf printf snprintf fgets ferror setvbuf rename",
    "cstdlib": "abort exit getenv malloc calloc realloc free aligned_alloc strtol strtod strtoull strtoll atoi quick_exit",
    "cstring": "memcpy memmove memset memcmp memchr strlen strcmp strncmp strerror strchr strsignal",
    "ctime": "time time_t tm strftime localtime gmtime mktime clock",
    "deque": "deque",
    "exception": "exception exception_ptr current_exception rethrow_exception make_exception_ptr terminate "
                 "uncaught_exceptions",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream fstream filebuf",
    "functional": "function reference_wrapper less greater hash plus multiplies bind_front invoke identity equal_to",
    "future": "future shared_future async promise launch future_status packaged_task",
    "initializer_list": "initializer_list",
    "iomanip": "setw setprecision setfill",
    "iostream": "cout cerr cin clog",
    "iterator": "back_inserter inserter istreambuf_iterator ostream_iterator istream_iterator reverse_iterator "
                "make_move_iterator forward_iterator input_iterator random_access_iterator sentinel_for",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "unique_ptr shared_ptr weak_ptr make_unique make_shared addressof enable_shared_from_this default_delete "
              "construct_at destroy_at assume_aligned static_pointer_cast",
    "mutex": "mutex lock_guard unique_lock scoped_lock once_flag call_once recursive_mutex timed_mutex",
    "new": "bad_alloc launder align_val_t nothrow bad_array_new_length",
    "numbers": "numbers",
    "numeric": "accumulate iota reduce inner_product partial_sum inclusive_scan exclusive_scan gcd lcm midpoint",
    "optional": "optional nullopt nullopt_t make_optional",
    "random": "mt19937 mt19937_64 uniform_int_distribution uniform_real_distribution normal_distribution random_device",
    "queue": "queue priority_queue",
    "ranges": "views",
    "set": "set multiset",
    "shared_mutex": "shared_mutex shared_lock",
    "source_location": "source_location",
    "span": "span as_bytes as_writable_bytes dynamic_extent",
    "sstream": "stringstream ostringstream istringstream",
    "stdexcept": "runtime_error logic_error invalid_argument out_of_range length_error overflow_error",
    "streambuf": "streambuf",
    "string": "string wstring u32string u16string u8string to_string stoi stol stoll stod stof stoull getline basic_string",
    "string_view": "string_view u32string_view basic_string_view u8string_view u16string_view",
    "system_error": "error_code errc system_error make_error_code generic_category system_category error_condition",
    "thread": "thread jthread this_thread",
    "tuple": "tuple make_tuple tie apply forward_as_tuple tuple_cat",
    "type_traits": "is_same_v is_same is_integral_v is_floating_point_v is_unsigned_v is_signed_v is_enum_v is_const_v "
                   "is_trivially_copyable_v is_void_v is_reference_v is_pointer_v is_convertible_v is_base_of_v decay_t "
                   "remove_cvref_t remove_const_t remove_reference_t conditional_t enable_if_t underlying_type_t "
                   "make_unsigned_t make_signed_t common_type_t invoke_result_t true_type false_type integral_constant "
                   "is_nothrow_move_constructible_v type_identity type_identity_t is_invocable_v bool_constant is_invocable_r_v "
                   "is_arithmetic_v is_default_constructible_v is_copy_constructible_v remove_pointer_t void_t",
    "typeinfo": "type_info",
    "unordered_map": "unordered_map unordered_multimap",
    "unordered_set": "unordered_set",
    "utility": "make_integer_sequence move forward swap exchange as_const cmp_less cmp_equal cmp_greater cmp_less_equal cmp_greater_equal in_range "
               "index_sequence make_index_sequence integer_sequence index_sequence_for in_place declval piecewise_construct",
    "variant": "variant visit get_if holds_alternative monostate variant_size_v variant_alternative_t",
    "vector": "vector",
}  # fmt: skip
SHARED = {  # names that several headers offer
    "pair": ["utility", "map", "algorithm"],
    "make_pair": ["utility", "map", "algorithm"],
    "get": ["tuple", "utility", "variant", "array"],
    "size_t": ["cstddef"],
    "ptrdiff_t": ["cstddef"],
    "byte": ["cstddef"],
    "to_integer": ["cstddef"],
    "max_align_t": ["cstddef"],
    "nullptr_t": ["cstddef"],
    "abs": ["cmath", "cstdlib", "complex"],
    "ostream": ["ostream", "iosfwd", "iostream", "sstream", "fstream"],
    "istream": ["istream", "iosfwd", "iostream", "sstream", "fstream"],
    "ios": ["ios", "ostream", "istream", "iostream", "sstream", "fstream"],
    "streamsize": ["ios", "ostream", "istream", "iostream", "sstream", "fstream"],
    "erase": ["vector", "string", "deque"],
    "erase_if": ["vector", "string", "deque", "map", "set", "unordered_map"],
    "string_view_literals": ["string_view"],
    "hash": ["functional", "string", "string_view"],
    "move": ["utility", "algorithm"],
    "swap": ["utility", "string_view", "array"],
    "ssize": ["iterator", "vector", "string", "span", "array", "map", "set", "string_view"],
    "size": ["iterator", "vector", "string", "span", "array", "map", "set", "string_view"],
    "data": ["iterator", "vector", "string", "span", "array", "string_view"],
    "next": ["iterator", "vector", "string", "map", "set", "span", "deque", "array"],
    "prev": ["iterator", "vector", "string", "map", "set", "span", "deque", "array"],
    "begin": ["iterator", "vector", "string", "map", "set", "span", "array", "initializer_list"],
    "end": ["iterator", "vector", "string", "map", "set", "span", "array", "initializer_list"],
    "distance": ["iterator", "vector", "string", "map", "set", "span", "array"],
    "advance": ["iterator", "vector", "string", "map", "set", "span", "array"],
    "ranges": ["ranges", "algorithm", "iterator"],
}  # fmt: skip
INTEGERS = re.compile(r"^u?int(_fast|_least)?(8|16|32|64|max|ptr)_t$")
NAME = re.compile(r"\bstd::(\w+)")
COMMENT = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"')

OFFERED = {name: [header] for header, names in HEADERS.items() for name in names.split()}
OFFERED.update(SHARED)


def offences(root):
    for path in sorted((root / "include" / "lora").rglob("*.[hi]pp")):
        text = path.read_text(encoding="utf-8")
        files = [path] if path.suffix == ".hpp" else [path, path.with_suffix(".hpp")]
        included = {name for file in files for _, quote, name in includes(file) if quote == "<"}
        # A name in a text or a comment is no use of it.
        code = COMMENT.sub("", text)
        seen = set()
        for match in NAME.finditer(code):
            name = match.group(1)
            if name == "size_t" and included:
                continue  # whichever it is, it has it
            headers = ["cstdint"] if INTEGERS.match(name) else OFFERED.get(name)
            where = f"{path.relative_to(root).as_posix()}:{code.count(chr(10), 0, match.start()) + 1}"
            if name in seen:
                continue
            seen.add(name)
            if headers is None:
                yield f"{where}: cmake/check_includes.py does not know which header offers std::{name}"
            elif not included.intersection(headers):
                yield f"{where}: std::{name} is used without #include <{'> or <'.join(headers)}>"


def self_test():
    """Each file alone under include/lora/a.hpp, and whether it must be told off."""
    cases = [("#include <vector>\nstd::vector<int> v;\n", 0),
             ("std::vector<int> v;\n", 1),
             ("// std::vector\nconst char* s = \"std::map\";\n", 0),
             ("#include <string>\nstd::vector<std::string> v;\nstd::vector<int> w;\n", 1),
             ("std::uint32_t n; std::cstdint_of_old m;\n", 2),
             ("#include <algorithm>\nstd::pair<int, int> p;\n", 0)]
    for text, wanted in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "include" / "lora").mkdir(parents=True)
            (root / "include" / "lora" / "a.hpp").write_text(text)
            found = list(offences(root))
            if len(found) != wanted:
                sys.exit(f"{text!r}: {wanted} offences expected, found {found}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true")
    if parser.parse_args().self_test:
        self_test()
        return
    found = list(offences(pathlib.Path(__file__).resolve().parent.parent))
    print("\n".join(found) if found else "every header includes what it uses of the standard library")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
