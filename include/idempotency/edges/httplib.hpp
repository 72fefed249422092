#pragma once

#include <httplib.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "idempotency/codec.hpp"
#include "idempotency/edges/http.hpp"

namespace idempotency {
inline namespace v0 {

/// What cpp-httplib does not know of a request.
struct HttplibOptions {
  /// Who is asking, as your authentication has it; empty text: nobody. Called concurrently.
  std::function<std::string(const httplib::Request&)> principal = {};
  /// The pattern that the handler is registered for, such as `/accounts/{id}/payments`. Empty: keys are kept apart by path.
  std::string route = {};
};

namespace detail {

/// A request and its response on their way through an `HttpIdempotency`.
class HttplibExchange {
 public:
  /// Lifetime: borrows all of them.
  HttplibExchange(const httplib::Request& request, httplib::Response& response,
                  const HttplibOptions& options)
      : request_(&request),
        response_(&response),
        options_(&options),
        headers_before_(response.headers),
        principal_(options.principal ? options.principal(request) : std::string()) {
    if (request.is_multipart_form_data()) multipart_ = meaning_of_parts();
  }

  [[nodiscard]] HttpRequest view() const {
    const HttpTarget target = split_http_target(request_->target);
    HttpRequest view{.method = request_->method,
                     .path = target.path,
                     .route = options_->route,
                     .query = target.query,
                     .body = multipart_.empty() ? std::string_view(request_->body) : multipart_,
                     .principal = principal_};
    for (const auto& [name, value] : request_->headers)
      view.headers.push_back({name, value});
    return view;
  }

  /// What the handler has made of the response; its body is moved out.
  [[nodiscard]] HttpResponse take() {
    HttpResponse taken{.status = response_->status == -1 ? 200 : response_->status};
    for (const auto& [name, value] : response_->headers)
      taken.headers.push_back({name, value});
    own_headers_ = taken.headers.size();
    taken.body = std::move(response_->body);
    if (response_->content_provider_) taken.form = HttpBodyForm::streamed;
    return taken;
  }

  void give(HttpAnswer answer) {
    const bool is_handlers =
        answer.origin == HttpOrigin::untouched || answer.origin == HttpOrigin::executed;
    if (!is_handlers) {  // nothing of what the handler may have left
      own_headers_ = 0;
      response_->headers = headers_before_;
      response_->status = answer.response.status;
      response_->reason.clear();
      response_->location.clear();
      response_->content_provider_ = nullptr;
      response_->content_length_ = 0;
      response_->is_chunked_content_provider_ = false;
    }
    for (std::size_t at = own_headers_; at < answer.response.headers.size(); ++at) {
      response_->headers.emplace(std::move(answer.response.headers[at].name),
                                 std::move(answer.response.headers[at].value));
    }
    response_->body = std::move(answer.response.body);
  }

 private:
  /// cpp-httplib has taken the body apart; the boundary, which differs between attempts, is not in it.
  [[nodiscard]] std::string meaning_of_parts() const {
    std::string meaning;
    append_count(meaning, request_->files.size());
    for (const auto& [name, part] : request_->files) {
      append_sized(meaning, name);
      append_sized(meaning, part.filename);
      append_sized(meaning, part.content_type);
      append_sized(meaning, part.content);
    }
    return meaning;
  }

  const httplib::Request* request_;
  httplib::Response* response_;
  const HttplibOptions* options_;
  httplib::Headers headers_before_;
  std::string principal_;
  std::string multipart_;
  std::size_t own_headers_ = 0;
};

}  // namespace detail

/// A handler for `httplib::Server::Post` and the like that runs `next(request, response)` once for each key; or
/// `next(request, response, Execution*)`, see `HttpIdempotency::handle`.
///
/// A response with a content provider is streamed: it is sent, and not recorded. Of a multipart form the parts count, in the order of
/// their names. Handlers that take a `ContentReader` cannot be wrapped.
///
/// Errors: of `HttpIdempotency::handle`; cpp-httplib answers them with 500 or its exception handler.
/// Thread safety: as the server calls handlers: concurrently; `next` too.
/// Lifetime: borrows `http`, which must outlive the server's last request.
template <class Guard, class Next>
[[nodiscard]] httplib::Server::Handler idempotent_handler(HttpIdempotency<Guard>& http,
                                                          HttplibOptions options, Next next) {
  using Request = const httplib::Request&;
  using Response = httplib::Response&;
  static_assert(std::invocable<Next&, Request, Response, Execution*> ||
                    std::invocable<Next&, Request, Response>,
                "idempotency: a handler for cpp-httplib takes its Request and Response, and may "
                "take Execution* behind them.");
  return [&http, options = std::move(options), next = std::move(next)](Request request,
                                                                       Response response) mutable {
    detail::HttplibExchange exchange(request, response, options);
    if constexpr (std::invocable<Next&, Request, Response, Execution*>) {
      exchange.give(http.handle(exchange.view(), [&](Execution* execution) {
        next(request, response, execution);
        return exchange.take();
      }));
    } else {
      exchange.give(http.handle(exchange.view(), [&] {
        next(request, response);
        return exchange.take();
      }));
    }
  };
}

/// A handler that issues keys: `HttpIdempotency::issue_key`. Lifetime: borrows `http`.
template <class Guard>
[[nodiscard]] httplib::Server::Handler key_issuing_handler(const HttpIdempotency<Guard>& http,
                                                           HttplibOptions options) {
  return [&http, options = std::move(options)](const httplib::Request& request,
                                               httplib::Response& response) {
    detail::HttplibExchange exchange(request, response, options);
    exchange.give(http.issue_key(exchange.view()));
  };
}

}  // namespace v0
}  // namespace idempotency
