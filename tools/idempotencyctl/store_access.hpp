#pragma once

#include <idempotency/stores/open.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "settings.hpp"
#include "text.hpp"

namespace idempotencyctl {

/// Keeps what a store says of its server's set-up.
///
/// Thread safety: as `Observer`.
class Hazards final : public idem::Observer {
 public:
  void on_hazard(std::string_view what) noexcept override;
  [[nodiscard]] std::vector<std::string> all() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> all_;
};

/// Whether a schema that is not there may be made.
enum class OnMissingSchema { refuse, make };

/// Opens the store of `--store` with the admin ability. Nothing is made that is not there, unless asked for.
///
/// Errors: `Ending`, and those of the store.
[[nodiscard]] std::unique_ptr<idem::AnyStore> open(
    const Settings& settings, idem::Observer* observer = nullptr,
    OnMissingSchema missing = OnMissingSchema::refuse);

/// The address without its password, for people and audits.
[[nodiscard]] std::string without_password(const std::string& address);

/// What `schema` is about.
enum class SchemaKind { none, sqlite, mysql };
[[nodiscard]] SchemaKind schema_of(const std::string& address);

/// The version of the schema in a SQLite file; 0 where there is none. Changes nothing.
///
/// Errors: `Ending` (store) for a file that is not there or no database.
[[nodiscard]] int sqlite_schema_version(const Settings& settings);

}  // namespace idempotencyctl
