#include "idempotency/edges/http_options.hpp"

#include "idempotency/error.hpp"

namespace idempotency {
inline namespace v0 {

namespace {

constexpr int first_status = 200;
constexpr int last_status = 599;

}  // namespace

HttpStatusPolicy::HttpStatusPolicy() {
  set_range(first_status, 499, HttpMeaning::recorded);
  set_range(500, last_status, HttpMeaning::retryable);
  for (const int status : {408, 409, 425, 429})
    set(status, HttpMeaning::retryable);
  for (const int status : {502, 504})
    set(status, HttpMeaning::uncertain);
}

HttpStatusPolicy HttpStatusPolicy::recording_all() {
  HttpStatusPolicy policy;
  policy.set_range(first_status, last_status, HttpMeaning::recorded);
  return policy;
}

HttpStatusPolicy& HttpStatusPolicy::set(int status, HttpMeaning meaning) {
  return set_range(status, status, meaning);
}

HttpStatusPolicy& HttpStatusPolicy::set_range(int first, int last, HttpMeaning meaning) {
  if (first < first_status || last > last_status || first > last) {
    throw Error(Errc::invalid_argument, "HttpStatusPolicy: final statuses are 200 to 599");
  }
  for (int status = first; status <= last; ++status)
    meanings_.at(static_cast<std::size_t>(status - first_status)) = meaning;
  return *this;
}

HttpMeaning HttpStatusPolicy::of(int status) const noexcept {
  if (status < first_status || status > last_status) return HttpMeaning::uncertain;
  return meanings_[static_cast<std::size_t>(status - first_status)];
}

std::vector<std::string> default_replayed_headers() {
  return {"Content-Type",
          "Content-Encoding",
          "Content-Language",
          "Content-Location",
          "Content-Disposition",
          "ETag",
          "Last-Modified",
          "Link",
          "Location",
          "Cache-Control",
          "Vary"};
}

}  // namespace v0
}  // namespace idempotency
