#include "text/files.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "kerasformer/errors.hpp"

namespace kerasformer {

std::string ReadFile(const std::string& folder, const std::string& name) {
  std::ifstream file(std::filesystem::path(folder) / name, std::ios::binary);
  std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) {
    throw BundleError(name + " cannot be read. Expected: the folder of a bundle, as kerasformer export writes it. Received: " + folder);
  }
  return content;
}

}  // namespace kerasformer
