pluginManagement {
    repositories {
        google()
        mavenCentral()
        gradlePluginPortal()
    }
}

dependencyResolutionManagement {
    repositories {
        google()
        mavenCentral()
    }
}

rootProject.name = "kerasformer-example"
include(":app")

// The library of this repository, in place of its published version.
includeBuild("../../mobile/kotlin")
