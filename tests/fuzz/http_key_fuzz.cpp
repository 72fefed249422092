// libFuzzer: a value of `Idempotency-Key` is refused or gives a key that its own quoted form gives again; the same bytes as a
// query or a path have a normal form that is no longer than they are.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/edges/http_fingerprint.hpp"
#include "idempotency/edges/http_key.hpp"
#include "idempotency/edges/http_message.hpp"
#include "seeds.hpp"

namespace {

using idempotency::HttpKeyFault;
using idempotency::HttpKeyReading;
using idempotency::HttpKeySyntax;

constexpr std::size_t longest = 64;

void check_key(std::string_view value) {
  const HttpKeyReading lenient = read_http_key(value, HttpKeySyntax::lenient, longest);
  const HttpKeyReading strict = read_http_key(value, HttpKeySyntax::strict, longest);
  if (strict.fault == HttpKeyFault::none && strict != lenient) std::abort();
  if ((lenient.fault == HttpKeyFault::none) == lenient.key.empty()) std::abort();
  if (lenient.fault != HttpKeyFault::none) return;
  const std::string quoted = idempotency::quoted_http_key(lenient.key);
  if (read_http_key(quoted, HttpKeySyntax::strict, longest) != lenient) std::abort();
  if (idempotency::http_record_key("t", value, value, lenient.key).text().size() > 320)
    std::abort();
}

void check_normal_forms(std::string_view text) {
  const idempotency::HttpTarget target = idempotency::split_http_target(text);
  if (target.path.size() + target.query.size() > text.size() + 1) std::abort();
  if (idempotency::split_http_target(std::string("http://h") + std::string(text)).query !=
          target.query &&
      text.starts_with('/')) {
    std::abort();
  }
  const std::string normal = idempotency::normalized_percent_encoding(text);
  if (normal.size() > text.size()) std::abort();
  std::string joined;
  const std::vector<std::string> parameters = idempotency::canonical_query(text);
  for (const std::string& parameter : parameters)
    joined += joined.empty() ? parameter : '&' + parameter;
  if (joined.size() > text.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_key(bytes);
  check_normal_forms(bytes);
  return 0;
}

// A seed now and then, so that the fuzzer starts from what is well-formed.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  return idempotency::fuzzing::mutate_with_seeds(
      {"\"8e03978e-40d5-43dd-bc93-6894a57f9324\"", "8e03978e", "\"a\\\"b\\\\c\"",
       "\"k\"; a=-1.5;b=?0;c=:aGk=:;d=tok/en:x;e=@17;f=%\"f%c3%bc\"", "\"a\", \"b\"",
       "b=%7e&a=1&a=%2F&&c", "/p%61y%2"},
      data, size, max_size, seed);
}
