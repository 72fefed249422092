// The operator's tool: looks at records, settles them, removes what is old, and says what is wrong with a store.

#include <CLI/CLI.hpp>
#include <idempotency/error.hpp>
#include <idempotency/version.hpp>
#include <iostream>

#include "audit.hpp"
#include "commands.hpp"
#include "settings.hpp"
#include "text.hpp"

namespace {

namespace ctl = idempotencyctl;
using ctl::Exit;
using ctl::Settings;

/// What the command line asks for; CLI11 writes into it.
struct Asked {
  Settings settings;
  ctl::GetOptions get;
  ctl::ListOptions list;
  ctl::WatchOptions watch;
  ctl::KeyOptions key;
  ctl::ResolveOptions resolve;
  ctl::ReleaseOptions release;
  ctl::PurgeOptions purge;
  ctl::ServeOptions serve;
  std::string dialect;
  Exit (*run)(const Asked&) = nullptr;
};

/// Refuses what is no number from 0, in words.
std::string count_from_zero(const std::string& text) {
  const bool is_number = !text.empty() && text.size() < 19 &&
                         text.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::string() : "'" + ctl::printable(text) + "' is no number from 0";
}

CLI::App* add(CLI::App& app, const char* name, const char* description, Asked& asked,
              Exit (*run)(const Asked&)) {
  CLI::App* command = app.add_subcommand(name, description);
  command->fallthrough();  // --store and the others may stand behind it
  command->callback([&asked, run] { asked.run = run; });
  return command;
}

void add_settings(CLI::App& app, Settings& settings) {
  app.add_option("--store", settings.store,
                 "Address: sqlite:FILE, redis://..., rediss://..., unix://..., mysql://...")
      ->envname("IDEMPOTENCY_STORE");
  app.add_option("--table-prefix", settings.table_prefix,
                 "Begins the names of an SQL store's tables (idempotency_)");
  app.add_flag("--json", settings.json, "One line of JSON, for programs");
  app.add_flag("--yes", settings.yes, "Change without asking");
  app.add_option("--audit-file", settings.audit_file, "Where each change is written down (stderr)")
      ->envname("IDEMPOTENCY_AUDIT_FILE");
  app.add_option("--who", settings.who, "Who it is, for the audit (the user)");
}

void add_reads(CLI::App& app, Asked& asked) {
  CLI::App* get = add(app, "get", "Show one record", asked,
                      [](const Asked& a) { return ctl::get(a.settings, a.get); });
  get->add_option("key", asked.get.key, "TYPE:VALUE")->required();
  get->add_option("--result-file", asked.get.result_file, "Write the result's bytes there");

  CLI::App* list = add(app, "list", "List records by key", asked,
                       [](const Asked& a) { return ctl::list(a.settings, a.list); });
  list->add_option("--type", asked.list.type, "Of this business type");
  list->add_option("--state", asked.list.state, "processing, success, failed, uncertain or issued");
  list->add_option("--older-than", asked.list.older_than, "Not changed for so long: 5m, 2h, 30d");
  list->add_option("--after", asked.list.after, "The cursor that a listing ended with");
  list->add_option("--limit", asked.list.limit, "At most so many; 0: all")
      ->check(count_from_zero)
      ->capture_default_str();

  add(app, "stats", "Count records by state", asked,
      [](const Asked& a) { return ctl::stats(a.settings); });

  CLI::App* watch = add(app, "watch", "Count again and again", asked,
                        [](const Asked& a) { return ctl::watch(a.settings, a.watch); });
  watch->add_option("--every", asked.watch.every, "The pause")->capture_default_str();
  watch->add_option("--times", asked.watch.times, "So often; 0: until it is stopped");

  CLI::App* key = add(app, "key", "Print the stored key of a type and its parts", asked,
                      [](const Asked& a) { return ctl::key(a.settings, a.key); });
  key->add_option("type", asked.key.type, "The business type")->required();
  key->add_option("parts", asked.key.parts, "One value, or several parts as in Key::of")
      ->required();
  key->add_flag("--digested", asked.key.digested, "As Key::digested makes it");
  key->add_option("--derived", asked.key.derived, "Also the derived key of this name")
      ->take_all()
      ->expected(1);

  add(app, "doctor", "Say what in a store's set-up could lose records", asked,
      [](const Asked& a) { return ctl::doctor(a.settings); });
}

void add_changes(CLI::App& app, Asked& asked) {
  CLI::App* resolve = add(app, "resolve", "Settle a record whose outcome is not known", asked,
                          [](const Asked& a) { return ctl::resolve(a.settings, a.resolve); });
  resolve->add_option("key", asked.resolve.key, "TYPE:VALUE")->required();
  resolve->add_flag("--success", asked.resolve.success, "It took effect");
  resolve
      ->add_option_function<std::string>(
          "--failed", [&asked](const std::string& text) { asked.resolve.failed = text; },
          "It did not and shall not; later calls get the text, or a neutral one")
      ->expected(0, 1)
      ->type_name("[TEXT]")
      ->default_str("");
  resolve->add_flag("--retry", asked.resolve.retry, "It did not: the next call runs it");
  resolve->add_option("--result", asked.resolve.result_file,
                      "The success' result: a file with what encode_result gives");
  resolve->add_option("--result-text", asked.resolve.result_text,
                      "The same of a handler that returns text");
  resolve
      ->add_option("--result-json", asked.resolve.result_json,
                   "The same of a handler whose type has a JsonCodec: its name, and a file of JSON")
      ->expected(2)
      ->type_name("NAME FILE");
  resolve->add_option(
      "--http-status", asked.resolve.http_status,
      "The same of an HTTP request: the response that retries get, from 200 to 599");
  resolve
      ->add_option("--http-header", asked.resolve.http_headers,
                   "A field of that response: 'Name: value'")
      ->take_all()
      ->expected(1);
  resolve->add_option("--http-body", asked.resolve.http_body, "A file with its body");
  resolve->add_option("--retention", asked.resolve.retention, "How long the record answers (30d)");
  resolve->add_option("--policies", asked.resolve.policies,
                      "A policy file that says so for the type");
  resolve->add_option("--fence", asked.resolve.fence, "Only when the record is at this fence");
  resolve->add_option("--margin", asked.resolve.margin,
                      "How long after the lease --retry is believed (60s)");
  resolve->add_flag("--force", asked.resolve.force, "--retry although it is too early");
  resolve->add_option("--reason", asked.resolve.reason, "Why, for the audit")->required();

  CLI::App* release = add(app, "release", "Take a record from an owner that hangs", asked,
                          [](const Asked& a) { return ctl::release(a.settings, a.release); });
  release->add_option("key", asked.release.key, "TYPE:VALUE")->required();
  release->add_flag("--force", asked.release.force,
                    "Although its owner may be at work, or its effect may have happened");
  release->add_option("--policies", asked.release.policies,
                      "A policy file that says which types hold");
  release->add_option("--reason", asked.release.reason, "Why, for the audit")->required();

  CLI::App* purge = add(app, "purge", "Remove records that are past their retention", asked,
                        [](const Asked& a) { return ctl::purge(a.settings, a.purge); });
  purge->add_option("--batch", asked.purge.batch, "So many at a time")->capture_default_str();
  purge->add_option("--pause", asked.purge.pause, "The pause between two batches")
      ->capture_default_str();
  purge->add_option("--reason", asked.purge.reason, "Why, for the audit");
}

void add_serve(CLI::App& app, Asked& asked) {
  CLI::App* serve = add(app, "serve", "Show the records in a browser", asked,
                        [](const Asked& a) { return ctl::serve(a.settings, a.serve); });
  serve->add_option("--listen", asked.serve.listen, "HOST:PORT; port 0: any free one")
      ->capture_default_str();
  serve->add_option("--token-file", asked.serve.token_file,
                    "Whoever has what stands in it may settle; without it, and without "
                    "IDEMPOTENCY_CONSOLE_TOKEN, nobody");
  serve->add_option("--allowed-host", asked.serve.allowed_hosts,
                    "Another name under which browsers know it, such as a proxy's");
  serve->add_option("--metrics", asked.serve.metrics,
                    "Where a process of the service exposes its metrics: http://HOST:PORT/metrics");
  serve->add_option("--every", asked.serve.every, "The pause between two looks at the store")
      ->capture_default_str();
  serve->add_option("--metrics-every", asked.serve.metrics_every, "The same for the metrics")
      ->capture_default_str();
  serve->add_option("--margin", asked.serve.margin,
                    "How long after the lease a retry is believed (60s)");
  serve->add_option("--policies", asked.serve.policies,
                    "A policy file that says how long settled records answer");
  serve->add_flag("--show-results", asked.serve.show_results,
                  "Show recorded results, which can be personal data");
  serve->add_flag("--insecure", asked.serve.insecure,
                  "Listen beyond this host although nothing is encrypted");
}

void add_schema(CLI::App& app, Asked& asked) {
  CLI::App* schema = app.add_subcommand("schema", "The tables of an SQL store");
  schema->fallthrough();
  schema->require_subcommand(1);
  add(*schema, "print", "Print the statements that make them", asked, [](const Asked& a) {
    return ctl::schema_print(a.settings, a.dialect);
  })->add_option("--dialect", asked.dialect, "sqlite or mysql");
  add(*schema, "check", "Say whether they are as they should be", asked,
      [](const Asked& a) { return ctl::schema_check(a.settings); });
  add(*schema, "migrate", "Make them where they are not there", asked,
      [](const Asked& a) { return ctl::schema_migrate(a.settings); });
}

int run(int count, char** words) {
  Asked asked;
  CLI::App app("Looks at the records of idempotent operations, and settles them.",
               "idempotencyctl");
  app.set_version_flag("--version", std::to_string(IDEMPOTENCY_VERSION_MAJOR) + '.' +
                                        std::to_string(IDEMPOTENCY_VERSION_MINOR) + '.' +
                                        std::to_string(IDEMPOTENCY_VERSION_PATCH));
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 no such record, 2 usage, 3 the store does not answer,\n"
      "4 refused: nothing was changed, 5 doctor or schema check found something,\n"
      "6 unknown whether it was changed, 7 changed but not written down, 8 stopped by a signal.");
  add_settings(app, asked.settings);
  add_reads(app, asked);
  add_changes(app, asked);
  add_serve(app, asked);
  add_schema(app, asked);
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? 0 : static_cast<int>(Exit::usage);
  }
  if (asked.settings.who.empty()) asked.settings.who = ctl::name_of_user();
  const Exit code = asked.run(asked);
  if (!std::cout.flush()) throw ctl::Ending(Exit::usage, "the output cannot be written");
  return static_cast<int>(code);
}

Exit exit_of(const idempotency::Error& error) {
  switch (error.code()) {
    case idempotency::Errc::invalid_key:
    case idempotency::Errc::invalid_argument:
    case idempotency::Errc::invalid_policy:
    case idempotency::Errc::store_refused:  // rights, schema, set-up: repeating does not mend it
      return Exit::usage;
    default:
      return Exit::store;
  }
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(count, words);
  } catch (const ctl::Ending& ending) {
    std::cerr << "idempotencyctl: " << ending.what() << '\n';
    return static_cast<int>(ending.code());
  } catch (const idempotency::Error& error) {
    std::cerr << "idempotencyctl: " << error.what();
    if (!error.detail().empty()) std::cerr << ": " << ctl::printable(error.detail());
    std::cerr << '\n';
    return static_cast<int>(exit_of(error));
  } catch (const std::exception& problem) {
    std::cerr << "idempotencyctl: " << problem.what() << '\n';
    return static_cast<int>(Exit::store);
  }
}
