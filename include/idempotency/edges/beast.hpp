#pragma once

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "idempotency/edges/http.hpp"

namespace idempotency {
inline namespace v0 {

/// What Boost.Beast does not know of a request.
///
/// Lifetime: of the text, until the call that is given it has returned.
struct BeastContext {
  std::string_view principal;   ///< who is asking, as your authentication has it; empty: nobody
  std::string_view route = {};  ///< the pattern that your router matched; empty: the path
};

namespace detail {

template <class Text>
[[nodiscard]] std::string_view beast_text(const Text& text) noexcept {
  return {text.data(), text.size()};
}

template <class Request>
[[nodiscard]] HttpRequest beast_view(const Request& request, const BeastContext& context) {
  const HttpTarget target = split_http_target(beast_text(request.target()));
  HttpRequest view{.method = beast_text(request.method_string()),
                   .path = target.path,
                   .route = context.route,
                   .query = target.query,
                   .body = request.body(),
                   .principal = context.principal};
  for (const auto& field : request) {
    view.headers.push_back({beast_text(field.name_string()), beast_text(field.value())});
  }
  return view;
}

/// Moves the body out.
template <class Response>
[[nodiscard]] HttpResponse from_beast(Response& response) {
  HttpResponse taken{.status = static_cast<int>(response.result_int())};
  for (const auto& field : response) {
    taken.headers.push_back(
        {std::string(beast_text(field.name_string())), std::string(beast_text(field.value()))});
  }
  taken.body = std::move(response.body());
  return taken;
}

template <class Response>
void add_to_beast(Response& response, const HttpHeader& header) {
  response.insert(boost::beast::string_view(header.name.data(), header.name.size()),
                  boost::beast::string_view(header.value.data(), header.value.size()));
}

}  // namespace detail

/// Answers `request` through `http`: with what `next` produces now, what it produced before, or a problem.
///
/// `next` takes nothing, or `Execution*` (see `HttpIdempotency::handle`), and returns a `response<string_body>`. What it returns is
/// sent as it is, but for a field `Idempotency-Advice`; the other answers have the request's version and keep-alive, and are
/// prepared to be written. Blocks as `guard.run` does: call it from a thread that may wait, not from the one that serves all
/// connections.
///
/// Errors and thread safety: of `HttpIdempotency::handle`.
template <class Guard, class Fields, class Next>
[[nodiscard]] boost::beast::http::response<boost::beast::http::string_body> answer_idempotently(
    HttpIdempotency<Guard>& http,
    const boost::beast::http::request<boost::beast::http::string_body, Fields>& request,
    const BeastContext& context, Next&& next) {
  using Response = boost::beast::http::response<boost::beast::http::string_body>;
  static_assert(std::invocable<Next&, Execution*> || std::invocable<Next&>,
                "idempotency: a handler for Boost.Beast takes nothing or Execution*, and returns a "
                "response<string_body>.");
  std::optional<Response> own;
  std::size_t own_headers = 0;
  const auto take = [&](Response response) {
    own.emplace(std::move(response));
    HttpResponse taken = detail::from_beast(*own);
    own_headers = taken.headers.size();
    return taken;
  };
  HttpAnswer answer = [&] {
    if constexpr (std::invocable<Next&, Execution*>) {
      return http.handle(detail::beast_view(request, context),
                         [&](Execution* execution) { return take(next(execution)); });
    } else {
      return http.handle(detail::beast_view(request, context), [&] { return take(next()); });
    }
  }();
  const bool is_handlers =
      answer.origin == HttpOrigin::untouched || answer.origin == HttpOrigin::executed;
  if (!is_handlers || !own) {
    own.emplace();
    own_headers = 0;
    own->result(static_cast<unsigned>(answer.response.status));
    own->version(request.version());
    own->keep_alive(request.keep_alive());
  }
  for (std::size_t at = own_headers; at < answer.response.headers.size(); ++at)
    detail::add_to_beast(*own, answer.response.headers[at]);
  own->body() = std::move(answer.response.body);
  if (!is_handlers) own->prepare_payload();
  return *std::move(own);
}

}  // namespace v0
}  // namespace idempotency
