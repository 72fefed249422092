#include <idempotency/edges/beast.hpp>
#include <idempotency/edges/httplib.hpp>
#include <idempotency/idempotency.hpp>
#include <idempotency/stores/memory.hpp>

int main() {
  idempotency::MemoryStore store;
  idempotency::IdempotencyGuard guard{store};
  idempotency::HttpIdempotency http{guard};

  const auto handler = idempotency::idempotent_handler(
      http, {.principal = [](const httplib::Request&) { return "alice"; }},
      [](const httplib::Request&, httplib::Response& response) { response.status = 201; });
  httplib::Request request;
  request.method = "POST";
  request.target = "/pay";
  request.headers.emplace("Idempotency-Key", "1");
  httplib::Response first;
  handler(request, first);
  httplib::Response second;
  handler(request, second);

  namespace beast = boost::beast::http;
  const beast::request<beast::string_body> get(beast::verb::get, "/", 11);
  const auto answer = idempotency::answer_idempotently(http, get, {.principal = "alice"}, [] {
    return beast::response<beast::string_body>(beast::status::no_content, 11);
  });

  const bool good = first.status == 201 && second.status == 201 &&
                    second.has_header("Idempotent-Replayed") && answer.result_int() == 204;
  return good ? 0 : 1;
}
