#include "idempotency/edges/http_fingerprint.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/percent.hpp"
#include "edges/http_text.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

using namespace detail::http;

constexpr std::string_view upper_digits = "0123456789ABCDEF";

// What stands in front of a body's digest. Part of stored fingerprints: never change.
enum class BodyKind : std::uint8_t { ignored = 0, bytes = 1, json = 2 };

constexpr bool is_unreserved(char c) noexcept {
  return is_letter(c) || is_digit(c) || c == '-' || c == '.' || c == '_' || c == '~';
}

std::string_view name_of(std::string_view parameter) noexcept {
  return parameter.substr(0, parameter.find('='));
}

/// `application/json`, `application/problem+json`, ..., whatever the parameters.
bool is_json(std::string_view content_type) {
  const std::string_view type = trimmed(content_type.substr(0, content_type.find(';')));
  constexpr std::string_view suffix = "+json";
  return is_same_name(type, "application/json") ||
         (type.size() > suffix.size() &&
          is_same_name(type.substr(type.size() - suffix.size()), suffix));
}

std::string text_of(const Fingerprint& fingerprint) {
  const Fingerprint::Digest& digest = fingerprint.current().digest;
  return {digest.begin(), digest.end()};
}

std::pair<BodyKind, std::string> body_part(const HttpRequest& request, HttpBodyMeaning meaning) {
  if (meaning == HttpBodyMeaning::ignored) return {BodyKind::ignored, {}};
  if (meaning == HttpBodyMeaning::json && is_json(request.header("Content-Type"))) {
    try {
      return {BodyKind::json, text_of(Fingerprint::of_json(request.body))};
    } catch (const Error&) {  // no JSON after all; the handler will say so
      return {BodyKind::bytes, text_of(Fingerprint::of_bytes(request.body))};
    }
  }
  return {BodyKind::bytes, text_of(Fingerprint::of_bytes(request.body))};
}

std::vector<std::pair<std::string, std::string_view>> chosen_headers(
    const HttpRequest& request, const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::string_view>> chosen;
  for (const std::string& name : names) {
    std::string lower = name;
    std::transform(lower.begin(), lower.end(), lower.begin(), to_lower);
    for (const HttpField& field : request.headers) {
      if (is_same_name(field.name, name)) chosen.emplace_back(lower, trimmed(field.value));
    }
  }
  return chosen;
}

}  // namespace

std::string normalized_percent_encoding(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    const int high = text[at] == '%' && at + 2 < text.size() ? detail::hex_digit(text[at + 1]) : -1;
    const int low = high >= 0 ? detail::hex_digit(text[at + 2]) : -1;
    if (low < 0) {
      out += text[at];
      continue;
    }
    const auto decoded = static_cast<char>(high * 16 + low);
    if (is_unreserved(decoded)) {
      out += decoded;
    } else {
      out += '%';
      out += upper_digits[static_cast<std::size_t>(high)];
      out += upper_digits[static_cast<std::size_t>(low)];
    }
    at += 2;
  }
  return out;
}

std::vector<std::string> canonical_query(std::string_view query) {
  std::vector<std::string> parameters;
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view parameter = query.substr(0, end);
    if (!parameter.empty()) parameters.push_back(normalized_percent_encoding(parameter));
    if (end == std::string_view::npos) break;
    query.remove_prefix(end + 1);
  }
  std::stable_sort(parameters.begin(), parameters.end(),
                   [](const std::string& left, const std::string& right) {
                     return name_of(left) < name_of(right);
                   });
  return parameters;
}

Fingerprint http_fingerprint(const HttpRequest& request, const HttpFingerprintOptions& options) {
  const auto [kind, body] = body_part(request, options.body);
  return Fingerprint::of("http-request/1", request.method,
                         normalized_percent_encoding(request.path), canonical_query(request.query),
                         chosen_headers(request, options.headers), kind, body);
}

}  // namespace v0
}  // namespace idempotency
