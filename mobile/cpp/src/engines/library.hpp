// A shared library that is loaded when it is needed, so that this library builds without the runtimes.
#pragma once

#include <dlfcn.h>

#include <string>

#include "kerasformer/errors.hpp"

namespace kerasformer {

class SharedLibrary {
 public:
  explicit SharedLibrary(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)), path_(path) {
    if (handle_) return;
    const char* error = dlerror();
    throw EngineError("The runtime cannot be loaded: " + std::string(error ? error : path) +
                      ". Install its shared library, or set EngineOptions::library to its path");
  }

  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  // The function with a name. The library stays loaded, since runtimes have threads that end with the process.
  template <class Function>
  Function* Get(const char* name) const {
    void* function = dlsym(handle_, name);
    if (!function) {
      throw EngineError(path_ + " lacks the function " + name + ". Use a release of the runtime that the README names");
    }
    return reinterpret_cast<Function*>(function);
  }

 private:
  void* handle_;
  std::string path_;
};

}  // namespace kerasformer
