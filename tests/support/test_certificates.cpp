#include "support/test_certificates.hpp"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/obj_mac.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <stdexcept>

namespace idempotency::testing_support {

namespace {

struct Free {
  void operator()(EVP_PKEY* key) const noexcept { EVP_PKEY_free(key); }
  void operator()(EVP_PKEY_CTX* context) const noexcept { EVP_PKEY_CTX_free(context); }
  void operator()(X509* certificate) const noexcept { X509_free(certificate); }
  void operator()(X509_EXTENSION* extension) const noexcept { X509_EXTENSION_free(extension); }
  void operator()(std::FILE* file) const noexcept { static_cast<void>(std::fclose(file)); }
};
using KeyPair = std::unique_ptr<EVP_PKEY, Free>;
using Certificate = std::unique_ptr<X509, Free>;

void check(bool succeeded, const char* what) {
  if (!succeeded) throw std::runtime_error(std::string("no certificates for the test: ") + what);
}

KeyPair new_key() {
  const std::unique_ptr<EVP_PKEY_CTX, Free> context(EVP_PKEY_CTX_new_id(EVP_PKEY_EC, nullptr));
  EVP_PKEY* key = nullptr;
  check(context && EVP_PKEY_keygen_init(context.get()) == 1 &&
            EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context.get(), NID_X9_62_prime256v1) == 1 &&
            EVP_PKEY_keygen(context.get(), &key) == 1,
        "a key");
  return KeyPair(key);
}

void extend(X509* certificate, int kind, const std::string& value) {
  const std::unique_ptr<X509_EXTENSION, Free> extension(
      X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str()));
  check(extension && X509_add_ext(certificate, extension.get(), -1) == 1, value.c_str());
}

/// A certificate for `key`, signed by an authority; by itself without one.
Certificate certify(EVP_PKEY* key, const std::string& name, X509* authority,
                    EVP_PKEY* authority_key) {
  Certificate certificate(X509_new());
  check(certificate != nullptr, "memory");
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  check(X509_set_version(certificate.get(), 2) == 1 &&
            ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1) == 1 &&
            X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600) != nullptr &&
            X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 86'400) != nullptr &&
            X509_set_pubkey(certificate.get(), key) == 1 &&
            X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                                       reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                                       0) == 1 &&
            X509_set_issuer_name(certificate.get(), authority != nullptr
                                                        ? X509_get_subject_name(authority)
                                                        : subject) == 1,
        "the fields");
  if (authority == nullptr) {
    extend(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
    extend(certificate.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
  } else {
    extend(certificate.get(), NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  }
  check(X509_sign(certificate.get(), authority != nullptr ? authority_key : key, EVP_sha256()) > 0,
        "a signature");
  return certificate;
}

std::unique_ptr<std::FILE, Free> open(const std::string& path) {
  std::unique_ptr<std::FILE, Free> file(std::fopen(path.c_str(), "w"));
  check(file != nullptr, path.c_str());
  return file;
}

void save(const std::string& path, X509* certificate) {
  check(PEM_write_X509(open(path).get(), certificate) == 1, path.c_str());
}

void save(const std::string& path, EVP_PKEY* key) {
  check(PEM_write_PrivateKey(open(path).get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
        path.c_str());
}

void save_locked(const std::string& path, EVP_PKEY* key) {
  const unsigned char passphrase[] = "secret";
  check(PEM_write_PrivateKey(open(path).get(), key, EVP_aes_128_cbc(), passphrase, 6, nullptr,
                             nullptr) == 1,
        path.c_str());
}

}  // namespace

TestCertificates::TestCertificates() {
  const KeyPair authority_key = new_key();
  const Certificate of_authority =
      certify(authority_key.get(), "authority", nullptr, authority_key.get());
  const KeyPair stranger_key = new_key();
  const KeyPair of_server = new_key();
  const KeyPair of_client = new_key();
  save(authority(), of_authority.get());
  save(stranger(), certify(stranger_key.get(), "stranger", nullptr, stranger_key.get()).get());
  save(server(), certify(of_server.get(), "server", of_authority.get(), authority_key.get()).get());
  save(server_key(), of_server.get());
  save(client(), certify(of_client.get(), "client", of_authority.get(), authority_key.get()).get());
  save(client_key(), of_client.get());
  save_locked(locked_key(), of_client.get());
}

}  // namespace idempotency::testing_support
